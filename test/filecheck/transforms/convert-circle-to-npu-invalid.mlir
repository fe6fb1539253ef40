// RUN: odc-opt %s --split-input-file --verify-diagnostics --convert-circle-to-npu

npu.program @no_pattern(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>> {
  // expected-error @+1 {{illegal after convert-circle-to-npu: no pattern lowers this operation}}
  %0 = circle.l2_normalization(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>> loc("y")
  odc.yield %0 : tensor<1x4x!quant.uniform<i8:f32, 0.5>>
}

// -----

npu.program @two_computed_operands(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>> {
  // expected-error @+1 {{illegal after convert-circle-to-npu: does not match LowerIsland, LowerByTable, LowerTableSum16, LowerByTable16}}
  %0 = circle.div(%x, %x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>> loc("y")
  odc.yield %0 : tensor<1x4x!quant.uniform<i8:f32, 0.5>>
}

// -----

npu.program @constant_result() -> tensor<2xi32> {
  // expected-error @+1 {{illegal after convert-circle-to-npu: does not match EraseUnusedConstant}}
  %0 = circle.const [1, 2] : tensor<2xi32> loc("c")
  odc.yield %0 : tensor<2xi32>
}
