// RUN: not odc-opt %s -p npu-lower-to-tiles 2>&1 | filecheck %s

// A convolution without a tiling cannot be cut.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv %x kernel [1, 1] weights <"0x01020304"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: the operation has no tiling
// CHECK-SAME: run npu-choose-tiles first
