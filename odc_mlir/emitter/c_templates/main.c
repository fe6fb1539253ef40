/* odc-mlir: inferences of ${name}.h on a host with the simulator, as an example. */
#include <stdio.h>

#include "${name}.h"
#include "host.h"

static const size_t input_bytes[] = {$input_bytes};
static const size_t output_bytes[] = {$output_bytes};

/* Read inputs from standard input until it ends, and write the outputs of each inference to standard output. With any
   argument, wait for interrupts instead of polling. Ends with the driver's status. */
int main(int count, char **arguments) {
  struct ${name}_model model;
  struct odc_npu_device device;
  struct odc_npu_image programs[${upper}_PROGRAMS];
  void *arena, *inputs[${upper}_INPUTS], *outputs[${upper}_OUTPUTS];
  enum odc_npu_status status = odc_host_open(&device, count > 1);
  int i;
  (void)arguments;
  if (status != ODC_NPU_OK) return (int)status;
  for (i = 0; i < ${upper}_PROGRAMS; i++) programs[i] = odc_host_image(${name}_programs[i]);
  for (i = 0; i < ${upper}_INPUTS; i++) inputs[i] = odc_host_memory(input_bytes[i]);
  for (i = 0; i < ${upper}_OUTPUTS; i++) outputs[i] = odc_host_memory(output_bytes[i]);
  arena = odc_host_memory(${upper}_ARENA_BYTES);
  if (arena == NULL) return ODC_NPU_E_MEMORY; /* the others are before it */
  status = ${name}_open(&model, &device, arena, programs);
  while (status == ODC_NPU_OK) {
    for (i = 0; i < ${upper}_INPUTS; i++)
      if (!odc_host_read(inputs[i], input_bytes[i])) return ODC_NPU_OK;
    status = ${name}_run(&model, (const void *const *)inputs, outputs);
    if (status != ODC_NPU_OK) break;
    fprintf(stderr, "%llu cycles\n", (unsigned long long)model.cycles);
    for (i = 0; i < ${upper}_OUTPUTS; i++) odc_host_write(outputs[i], output_bytes[i]);
  }
  return (int)status;
}
