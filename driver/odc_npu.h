/* odc-mlir: driver of the NPU in C99. docs/npu.md defines the container and the register block.
 *
 * The driver is one translation unit. It allocates nothing, keeps no state of its own, and needs memcpy only.
 * The order of calls:
 *
 *     odc_npu_open(&device);                                        once
 *     odc_npu_parse(&program, image, image_bytes);                  once per program
 *     odc_npu_bind(&program, memory, odc_npu_memory_bytes(&program));
 *     odc_npu_run(&device, &program, inputs, outputs);              once per inference
 *
 * odc_npu_run consists of odc_npu_start and odc_npu_wait, which a scheduler can call itself.
 */
#ifndef ODC_NPU_H
#define ODC_NPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ODC_NPU_ALIGNMENT 128u
#define ODC_NPU_MAX_RANK 8u

#if defined(__GNUC__)
#define ODC_NPU_ALIGNED __attribute__((aligned(128)))
#else
#define ODC_NPU_ALIGNED /* the linker script aligns images and arenas to ODC_NPU_ALIGNMENT */
#endif

enum odc_npu_status {
  ODC_NPU_OK = 0,
  /* odc_npu_parse refuses the container: */
  ODC_NPU_E_SIZE,     /* it is shorter or longer than its header says */
  ODC_NPU_E_MAGIC,    /* it is no container */
  ODC_NPU_E_VERSION,  /* another version of the container or of the instruction set */
  ODC_NPU_E_HEADER,   /* a field of the header is not allowed */
  ODC_NPU_E_CHECKSUM, /* a checksum does not match, or bytes between sections are not zero */
  ODC_NPU_E_SECTIONS, /* sections overlap, leave the file, are missing, unknown or given twice */
  ODC_NPU_E_TENSORS,  /* an input or output is malformed or does not fit in its region */
  ODC_NPU_E_METADATA, /* the metadata are malformed or contradict the header */
  ODC_NPU_E_STATES,   /* a state's input and output are not one place in the arena */
  ODC_NPU_E_MAP,      /* the map of operators is malformed */
  /* The caller made a mistake: */
  ODC_NPU_E_ARGUMENT,  /* there is no such input or output */
  ODC_NPU_E_ALIGNMENT, /* memory or image is not at a multiple of ODC_NPU_ALIGNMENT, as the NPU sees it */
  ODC_NPU_E_MEMORY,    /* the memory is smaller than odc_npu_memory_bytes */
  /* The device: */
  ODC_NPU_E_DEVICE,   /* there is no NPU, or one with another register block or instruction set */
  ODC_NPU_E_HARDWARE, /* the program was compiled for other hardware */
  ODC_NPU_E_BUSY,     /* the device runs a job */
  ODC_NPU_E_WAIT,     /* the platform's wait function gave up */
  ODC_NPU_E_FAILED,   /* the job failed; odc_npu_error has the reason */
  /* Code that calls the driver: */
  ODC_NPU_E_HOST /* an operator on the processor found an index outside of its tensor */
};

/* Values of the ERROR register. */
enum odc_npu_device_error {
  ODC_NPU_ERROR_NONE = 0,
  ODC_NPU_ERROR_ADDRESS = 1, /* a base address is not aligned, or there is no memory */
  ODC_NPU_ERROR_PROGRAM = 2, /* the program is malformed */
  ODC_NPU_ERROR_RUN = 3      /* an instruction failed: an address outside of its region, a deadlock, … */
};

/* Offsets of the registers in bytes. The device writes the first group, the driver the second one. */
enum odc_npu_register {
  ODC_NPU_ID = 0x00,
  ODC_NPU_VERSION = 0x04,
  ODC_NPU_HARDWARE = 0x08,
  ODC_NPU_STATUS = 0x0C,
  ODC_NPU_DONE = 0x10,
  ODC_NPU_ERROR = 0x14,
  ODC_NPU_HALT = 0x18,
  ODC_NPU_CYCLES = 0x20,

  ODC_NPU_CONTROL = 0x40,
  ODC_NPU_IRQ_ENABLE = 0x44,
  ODC_NPU_IRQ_CLEAR = 0x48,
  ODC_NPU_PROGRAM = 0x50,
  ODC_NPU_PROGRAM_BYTES = 0x58,
  ODC_NPU_REGION = 0x60, /* of region 0; the next regions follow at ODC_NPU_REGION_STEP */
  ODC_NPU_REGION_BYTES = 0x68
};
#define ODC_NPU_REGION_STEP 0x10u

enum odc_npu_type { ODC_NPU_UINT8, ODC_NPU_INT8, ODC_NPU_INT16, ODC_NPU_INT32, ODC_NPU_INT64, ODC_NPU_BOOL };
enum odc_npu_region { ODC_NPU_CONSTANTS, ODC_NPU_ARENA, ODC_NPU_INPUTS, ODC_NPU_OUTPUTS, ODC_NPU_REGIONS };

/* An input or output: dense, row-major, little-endian. A scale of 0 means that it is not quantised. */
struct odc_npu_tensor {
  const uint8_t *name; /* UTF-8 without an end mark, in the image */
  uint32_t name_bytes;
  uint8_t type;
  uint8_t region;
  uint8_t rank;
  uint32_t shape[ODC_NPU_MAX_RANK];
  uint32_t offset;
  uint32_t bytes;
  double scale;
  int32_t zero_point;
};

/* A parsed program. It refers to its image, which has to stay. */
struct odc_npu_program {
  const uint8_t *code;
  uint32_t code_bytes;
  const uint8_t *constants;
  const uint8_t *tensors; /* the records of inputs, then of outputs */
  const uint8_t *tensors_end;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t hardware;
  uint32_t region_bytes[ODC_NPU_REGIONS];
  uint8_t *memory[ODC_NPU_REGIONS]; /* of odc_npu_bind; the constants are read from the image */
};

/* A device, described by the platform. `wait` and `synchronise` may be NULL. */
struct odc_npu_device {
  volatile uint32_t *registers;
  uintptr_t origin; /* pointer minus origin is the address that the NPU uses; 0 on most microcontrollers */
  int use_interrupt;
  /* Called while a job runs: waits for the interrupt, sleeps or checks a timer. A result other than 0 gives up.
     Without it, the driver polls. */
  int (*wait)(void *context);
  /* Called before a job starts and after it ends: barriers, and cleaning and invalidating of data caches. */
  void (*synchronise)(void *context);
  void *context;
  uint32_t job; /* the driver's: number of the last job */
};

/* A container in memory. */
struct odc_npu_image {
  const void *data;
  size_t bytes;
};

/* Check a container and describe it in `program`. Reads only the given bytes. */
enum odc_npu_status odc_npu_parse(struct odc_npu_program *program, const void *data, size_t bytes);

/* Describe an input or output of a parsed program. */
enum odc_npu_status odc_npu_input(const struct odc_npu_program *program, uint32_t index, struct odc_npu_tensor *tensor);
enum odc_npu_status odc_npu_output(const struct odc_npu_program *program, uint32_t index, struct odc_npu_tensor *tensor);

/* Return the bytes of arena, inputs and outputs together. */
size_t odc_npu_memory_bytes(const struct odc_npu_program *program);

/* Place arena, inputs and outputs in `memory`. Programs that do not run at the same time may share it. */
enum odc_npu_status odc_npu_bind(struct odc_npu_program *program, void *memory, size_t bytes);

/* Return the memory of an input or output of a bound program. */
void *odc_npu_data(const struct odc_npu_program *program, const struct odc_npu_tensor *tensor);

/* Check that the device is an idle NPU that this driver knows. */
enum odc_npu_status odc_npu_open(struct odc_npu_device *device);

/* Program the registers and start a job; returns at once. */
enum odc_npu_status odc_npu_start(struct odc_npu_device *device, const struct odc_npu_program *program);

/* Return ODC_NPU_E_BUSY while the job runs, then its result. */
enum odc_npu_status odc_npu_poll(struct odc_npu_device *device);

/* Wait for the end of the job, clear its interrupt and return its result. */
enum odc_npu_status odc_npu_wait(struct odc_npu_device *device);

/* Clear the interrupt. An interrupt handler may call this: odc_npu_wait does not depend on it. */
void odc_npu_clear_interrupt(struct odc_npu_device *device);

/* Copy the inputs, run the program and copy the outputs. */
enum odc_npu_status odc_npu_run(struct odc_npu_device *device, const struct odc_npu_program *program,
                                const void *const *inputs, void *const *outputs);

/* Return cycles, ERROR and the status of `halt` of the last job. */
uint64_t odc_npu_cycles(const struct odc_npu_device *device);
uint32_t odc_npu_error(const struct odc_npu_device *device);
uint32_t odc_npu_halt(const struct odc_npu_device *device);

#ifdef __cplusplus
}
#endif

#endif
