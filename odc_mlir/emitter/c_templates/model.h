/* odc-mlir: firmware for the NPU $target, constants in $memory, and $processor. */
$needs
#ifndef ${upper}_H
#define ${upper}_H

#include "odc_npu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ${upper}_PROGRAMS $programs
#define ${upper}_INPUTS $input_count
#define ${upper}_OUTPUTS $output_count
#define ${upper}_ARENA_BYTES $arena_bytes

$tensors

/* The programs where the linker puts them. */
extern const struct odc_npu_image ${name}_programs[${upper}_PROGRAMS];

struct ${name}_model {
  struct odc_npu_device *device;
  uint8_t *arena;
  uint64_t cycles; /* of the NPU in the last run */
  struct odc_npu_program programs[${upper}_PROGRAMS];
};

/* Prepare a model, and set its states to their start. The NPU reads `programs` and accesses `arena`, which has
   ${upper}_ARENA_BYTES at a multiple of ODC_NPU_ALIGNMENT. */
enum odc_npu_status ${name}_open(struct ${name}_model *model, struct odc_npu_device *device, void *arena,
                                 const struct odc_npu_image *programs);

/* Run one inference on ${upper}_INPUTS inputs; write ${upper}_OUTPUTS outputs. */
enum odc_npu_status ${name}_run(struct ${name}_model *model, const void *const *inputs, void *const *outputs);

#ifdef __cplusplus
}
#endif

#endif
