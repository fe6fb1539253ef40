// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=remove_redundant_quantize,remove_quantdequant,remove_qdq_for_mpo,remove_fakequant' | filecheck %s

// Quantised twice in a row: the second parameters are what counts.
func.func @remove_redundant_quantize(%x: tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.25>>
  %1 = circle.quantize(%0) : (tensor<4x!quant.uniform<i8:f32, 0.25>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @remove_redundant_quantize(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK-NEXT: %[[Y:.*]] = circle.quantize(%[[X]]) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
// CHECK-NEXT: func.return %[[Y]]

// -----

// There and back: the real values stay as they are. What the function returns keeps its operator.
func.func @remove_quantdequant(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.25>>
  %1 = circle.dequantize(%0) : (tensor<4x!quant.uniform<i8:f32, 0.25>>) -> tensor<4xf32>
  %2 = circle.relu(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.25>>
  %4 = circle.dequantize(%3) : (tensor<4x!quant.uniform<i8:f32, 0.25>>) -> tensor<4xf32>
  func.return %2, %4 : tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func @remove_quantdequant(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: circle.relu(%[[X]])
// CHECK: circle.dequantize

// -----

// FAKE_QUANT goes.
func.func @remove_fakequant(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = circle.fake_quant(%x) {min = -1.0, max = 1.0, num_bits = 8} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.relu(%0) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
// CHECK-LABEL: func.func @remove_fakequant(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK-NEXT: circle.relu(%[[X]])
