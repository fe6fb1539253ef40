// RUN: odc-opt %s '--circle-optimize=level=none rewrites=remove_qdq_for_mpo' | filecheck %s

// Of two pairs in a row the last stays.
func.func @remove_qdq_for_mpo(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 0.25>>
  %1 = circle.dequantize(%0) : (tensor<4x!quant.uniform<i16:f32, 0.25>>) -> tensor<4xf32>
  %2 = circle.quantize(%1) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %3 = circle.dequantize(%2) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4xf32>
  func.return %3 : tensor<4xf32>
}
// CHECK-LABEL: func.func @remove_qdq_for_mpo(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK-NEXT: %[[Q:.*]] = circle.quantize(%[[X]]) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
// CHECK-NEXT: %[[Y:.*]] = circle.dequantize(%[[Q]])
// CHECK-NEXT: func.return %[[Y]]
