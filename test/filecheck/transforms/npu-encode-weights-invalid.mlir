// RUN: not odc-opt %s -p 'npu-encode-weights{codings=raw,morse}' 2>&1 | filecheck %s

builtin.module {
}

// CHECK: there is no weight coding 'morse' (pass npu-encode-weights); use some of raw, rice, huffman
