/* odc-mlir: the driver's platform on a POSIX host: the device is the file that stub.py serves. */
#ifndef ODC_HOST_H
#define ODC_HOST_H

#include "odc_npu.h"

/* Map the file that the environment variable ODC_NPU_STUB names, and open the device in it. */
enum odc_npu_status odc_host_open(struct odc_npu_device *device, int use_interrupt);

/* Return aligned memory that the device sees, or NULL if there is no more. */
void *odc_host_memory(size_t bytes);

/* Return a copy of a container in such memory. On a microcontroller, the NPU reads images where the linker put them. */
struct odc_npu_image odc_host_image(struct odc_npu_image image);

/* Read all bytes from standard input; 0 at its end. Write all bytes to standard output. */
int odc_host_read(void *data, size_t bytes);
int odc_host_write(const void *data, size_t bytes);

#endif
