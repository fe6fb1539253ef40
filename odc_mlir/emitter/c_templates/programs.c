/* odc-mlir: the programs of ${name}.h. */
#include "${name}.h"

$arrays

const struct odc_npu_image ${name}_programs[${upper}_PROGRAMS] = {
$images
};
