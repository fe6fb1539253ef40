/* odc-mlir: what ${name}.o takes and gives; code for $triple, $cpu. */
/* $needed */
#ifndef ${upper}_H
#define ${upper}_H

#include <stdint.h>

/* The caller has to align all buffers to this many bytes. _BYTES includes $slack bytes behind the contents. */
#define ${upper}_ALIGNMENT $alignment
#define ${upper}_ARENA_BYTES $arena_bytes
$tensors
/* One inference; 0, or 1 where an index is outside its tensor. Keeps nothing: any number may run at a time, each with an arena of its own. */
#ifdef __cplusplus
extern "C"
#endif
int32_t ${name}_run($parameters);

#endif
