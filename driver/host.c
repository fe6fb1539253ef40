/* odc-mlir: the driver's platform on a POSIX host; see host.h. */
#define _POSIX_C_SOURCE 200809L
#include "host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_OFFSET 4096u /* of stub.py: the registers are before it */

static uint8_t *mapped;
static size_t mapped_bytes, used_bytes;
static int interrupts = -1;

/* A byte arrives for each interrupt; none are left when the stub has ended. */
static int wait_for_interrupt(void *context) {
  uint8_t byte;
  (void)context;
  return read(interrupts, &byte, 1) == 1 ? 0 : 1;
}

static int sleep_a_little(void *context) {
  const struct timespec nap = {0, 100000};
  (void)context;
  nanosleep(&nap, NULL);
  return 0;
}

/* Two processes share the memory, so a fence is enough. */
static void fence(void *context) {
  (void)context;
  __sync_synchronize();
}

enum odc_npu_status odc_host_open(struct odc_npu_device *device, int use_interrupt) {
  const char *path = getenv("ODC_NPU_STUB");
  struct stat facts;
  char pipe[4096];
  int file = path == NULL ? -1 : open(path, O_RDWR);
  if (file < 0 || fstat(file, &facts) != 0 || (size_t)facts.st_size < MEMORY_OFFSET) return ODC_NPU_E_DEVICE;
  mapped_bytes = (size_t)facts.st_size;
  mapped = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return ODC_NPU_E_DEVICE;
  used_bytes = MEMORY_OFFSET;
  if (use_interrupt) {
    if (snprintf(pipe, sizeof pipe, "%s.irq", path) >= (int)sizeof pipe) return ODC_NPU_E_DEVICE;
    interrupts = open(pipe, O_RDONLY);
    if (interrupts < 0) return ODC_NPU_E_DEVICE;
  }
  *device = (struct odc_npu_device){.registers = (volatile uint32_t *)(void *)mapped,
                                    .origin = (uintptr_t)mapped,
                                    .use_interrupt = use_interrupt,
                                    .wait = use_interrupt ? wait_for_interrupt : sleep_a_little,
                                    .synchronise = fence};
  return odc_npu_open(device);
}

void *odc_host_memory(size_t bytes) {
  size_t first = (used_bytes + ODC_NPU_ALIGNMENT - 1) / ODC_NPU_ALIGNMENT * ODC_NPU_ALIGNMENT;
  if (mapped == NULL || first > mapped_bytes || bytes > mapped_bytes - first) return NULL;
  used_bytes = first + bytes;
  return mapped + first;
}

struct odc_npu_image odc_host_image(struct odc_npu_image image) {
  void *copy = odc_host_memory(image.bytes);
  if (copy != NULL) memcpy(copy, image.data, image.bytes);
  return (struct odc_npu_image){copy, copy == NULL ? 0 : image.bytes};
}

int odc_host_read(void *data, size_t bytes) { return fread(data, 1, bytes, stdin) == bytes; }

int odc_host_write(const void *data, size_t bytes) { return fwrite(data, 1, bytes, stdout) == bytes; }
