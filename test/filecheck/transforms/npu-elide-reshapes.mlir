// RUN: odc-opt %s --split-input-file --npu-elide-reshapes | filecheck %s

// There and back again: nothing is left.
func.func @round_trip(%x: tensor<2x3x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x3x!quant.uniform<i8:f32, 0.5>> {
  %0 = npu.reshape %x : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<1x6x!quant.uniform<i8:f32, 0.5>>
  %1 = npu.reshape %0 : tensor<1x6x!quant.uniform<i8:f32, 0.5>> -> tensor<2x3x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<2x3x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @round_trip(%x: 
// CHECK-NEXT: func.return %x

// -----

// A view of a view reads the source; the one between stays where something else reads it.
func.func @chain(%x: tensor<2x3x!quant.uniform<i8:f32, 0.5>>) -> (tensor<6x!quant.uniform<i8:f32, 0.5>>, tensor<3x2x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.reshape %x : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<6x!quant.uniform<i8:f32, 0.5>>
  %1 = npu.reshape %0 : tensor<6x!quant.uniform<i8:f32, 0.5>> -> tensor<3x2x!quant.uniform<i8:f32, 0.5>>
  func.return %0, %1 : tensor<6x!quant.uniform<i8:f32, 0.5>>, tensor<3x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @chain(%x: 
// CHECK-NEXT: %[[A:.*]] = npu.reshape %x : {{.*}} -> tensor<6x
// CHECK-NEXT: %[[B:.*]] = npu.reshape %x : {{.*}} -> tensor<3x2x
// CHECK-NEXT: func.return %[[A]], %[[B]]

// -----

// A change of quantisation is no round trip, even if the shape is the same again.
func.func @other_scale(%x: tensor<6x!quant.uniform<i8:f32, 0.5>>) -> tensor<6x!quant.uniform<i8:f32, 0.25>> {
  %0 = npu.reshape %x : tensor<6x!quant.uniform<i8:f32, 0.5>> -> tensor<6x!quant.uniform<i8:f32, 0.25>>
  func.return %0 : tensor<6x!quant.uniform<i8:f32, 0.25>>
}
// CHECK-LABEL: func.func @other_scale(
// CHECK-NEXT: npu.reshape
