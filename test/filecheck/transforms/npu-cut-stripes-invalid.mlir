// RUN: not odc-opt %s -p npu-cut-stripes 2>&1 | filecheck %s

// The input, the output and one stripe of the tensor between are more than the limit.
builtin.module attributes {odc.target = #odc.target<"npu-256", sram_limit = 42000>} {
  npu.program @segment_0(%x: tensor<1x64x64x8xi8>) -> tensor<1x32x32x8xi8> {
    %t = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x64x64x8xi8>
    %y = npu.pool max %t kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x32x32x8xi8>
    odc.yield %y : tensor<1x32x32x8xi8>
  }
}
// CHECK: tensors need 42496 bytes of SRAM however they are cut, 42000 are allowed
