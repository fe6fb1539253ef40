// RUN: odc-opt %s --stage npu | filecheck %s

// A padded convolution and a classifier: padding moves into the convolution, views between operations go, and the circle
// body stays as it was.
func.func @main(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.00390625:-128>> {
  %p = circle.const [0, 0, 1, 1, 1, 1, 0, 0] : tensor<4x2xi32>
  %0 = circle.pad(%x, %p) : (tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>, tensor<4x2xi32>) -> tensor<1x6x6x1x!quant.uniform<i8:f32, 0.5:7>>
  %w = circle.const [1, 2, 3, 4, 5, 6, 7, 8, 9] : tensor<1x3x3x1x!quant.uniform<i8:f32, 0.25>>
  %n = circle.none
  %1 = circle.conv_2d(%0, %w, %n) {padding = valid, stride = [3, 3], activation = relu} : (tensor<1x6x6x1x!quant.uniform<i8:f32, 0.5:7>>, tensor<1x3x3x1x!quant.uniform<i8:f32, 0.25>>, none) -> tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>
  %s = circle.const [1, 4] : tensor<2xi32>
  %2 = circle.reshape(%1, %s) : (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>>
  %f = circle.const [1, 2, 3, 4, 5, 6, 7, 8] : tensor<2x4x!quant.uniform<i8:f32, 0.25>>
  %3 = circle.fully_connected(%2, %f, %n) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>, tensor<2x4x!quant.uniform<i8:f32, 0.25>>, none) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>>
  %4 = circle.softmax(%3) {beta = 1.0} : (tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.00390625:-128>>
  func.return %4 : tensor<1x2x!quant.uniform<i8:f32, 0.00390625:-128>>
}
// CHECK: odc.segment @segment_0
// CHECK: circle.pad
// CHECK: circle.softmax
// CHECK: npu.program @segment_0(%[[X:.*]]: tensor
// CHECK-NEXT: %[[V0:.*]] = npu.conv %[[X]] kernel [3, 3] stride [3, 3] pads [1, 1, 1, 1]
// CHECK-NEXT: %[[V1:.*]] = npu.reshape %[[V0]] : {{.*}} -> tensor<1x1x1x4x
// CHECK-NEXT: %[[V2:.*]] = npu.conv %[[V1]] kernel [1, 1]
// CHECK-NEXT: %[[V3:.*]] = npu.reshape %[[V2]]
// CHECK-NEXT: %[[V4:.*]] = npu.softmax %[[V3]]
// CHECK-NEXT: odc.yield %[[V4]]
