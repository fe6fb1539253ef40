// RUN: odc-opt %s --convert-circle-to-npu | filecheck %s

// In an existing program circle operators are lowered, npu operations stay, and unused constants go.
npu.program @existing(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  %c = circle.const [1, 2] : tensor<2xi32>
  %0 = npu.scale %x in_zero 10 out_zero 10 scale <1073741824, 1> clamp(10, 127) : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  %1 = circle.relu6(%0) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  odc.yield %1 : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
// CHECK-LABEL: npu.program @existing(
// CHECK-NEXT: %[[V0:.*]] = npu.scale %x in_zero 10 out_zero 10 scale <1073741824, 1> clamp(10, 127)
// CHECK-NEXT: %[[V1:.*]] = npu.scale %[[V0]] in_zero 10 out_zero 10 scale <1073741824, 1> clamp(10, 22)
// CHECK-NEXT: odc.yield %[[V1]]
