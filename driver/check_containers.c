/* odc-mlir: parses each container of a file, for tests with an address sanitizer.
 *
 * The file has a 32-bit size before each container. Every container gets memory of exactly its size, so that a read
 * beyond it is found. Prints the status of each; what is accepted is also bound, and its tensors are written, unless
 * they take too long.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "odc_npu.h"

#define MOST_BYTES (1u << 20)

static int use(struct odc_npu_program *program) {
  size_t bytes = odc_npu_memory_bytes(program);
  uint8_t *memory;
  struct odc_npu_tensor tensor;
  enum odc_npu_status status;
  uint32_t i;
  if (bytes > MOST_BYTES) return 0;
  memory = malloc(bytes);
  if (memory == NULL && bytes > 0) return 1;
  status = odc_npu_bind(program, memory, bytes);
  for (i = 0; odc_npu_input(program, i, &tensor) == ODC_NPU_OK; i++)
    memset(odc_npu_data(program, &tensor), 0, tensor.bytes);
  for (i = 0; odc_npu_output(program, i, &tensor) == ODC_NPU_OK; i++)
    memset(odc_npu_data(program, &tensor), 0, tensor.bytes);
  free(memory);
  return status != ODC_NPU_OK;
}

int main(int count, char **arguments) {
  FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
  uint8_t head[4];
  if (file == NULL) return 2;
  while (fread(head, 1, sizeof head, file) == sizeof head) {
    size_t bytes = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    uint8_t *data = malloc(bytes);
    struct odc_npu_program program;
    enum odc_npu_status status;
    if ((data == NULL && bytes > 0) || fread(data, 1, bytes, file) != bytes) return 2;
    status = odc_npu_parse(&program, data, bytes);
    if (status == ODC_NPU_OK && use(&program) != 0) return 2;
    free(data);
    printf("%d\n", (int)status);
  }
  return ferror(file) ? 2 : 0;
}
