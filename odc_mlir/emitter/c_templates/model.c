/* odc-mlir: the plan of ${name}.h. */
#include "${name}.h"

#include <string.h>

$declarations

/* Run a program with its regions in `memory`. */
static enum odc_npu_status run_program(struct ${name}_model *model, int number, void *memory,
                                       const void *const *inputs, void *const *outputs) {
  struct odc_npu_program *program = &model->programs[number];
  enum odc_npu_status status = odc_npu_bind(program, memory, odc_npu_memory_bytes(program));
  if (status == ODC_NPU_OK) status = odc_npu_run(model->device, program, inputs, outputs);
  if (status == ODC_NPU_OK) model->cycles += odc_npu_cycles(model->device);
  return status;
}

enum odc_npu_status ${name}_open(struct ${name}_model *model, struct odc_npu_device *device, void *arena,
                                 const struct odc_npu_image *programs) {
  enum odc_npu_status status;
  int i;
  model->device = device;
  model->arena = arena;
  model->cycles = 0;
  for (i = 0; i < ${upper}_PROGRAMS; i++) {
    status = odc_npu_parse(&model->programs[i], programs[i].data, programs[i].bytes);
    if (status != ODC_NPU_OK) return status;
  }
$resets
  return ODC_NPU_OK;
}

enum odc_npu_status ${name}_run(struct ${name}_model *model, const void *const *inputs, void *const *outputs) {
  enum odc_npu_status status;
  model->cycles = 0;
$steps
  return ODC_NPU_OK;
}
