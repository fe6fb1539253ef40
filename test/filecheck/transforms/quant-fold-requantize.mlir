// RUN: odc-opt %s --split-input-file --quant-fold-requantize | filecheck %s
// RUN: odc-opt %s --split-input-file --quant-fold-requantize='superseded=true' | filecheck %s --check-prefix ONCE

// Codes that come back as they were, and codes that become what they are.
func.func @back(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.dequantize(%x) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4xf32>
  %1 = circle.quantize(%0) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %2 = circle.quantize(%1) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %3 = circle.relu(%2) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return %3 : tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: func.func @back(%[[X:.*]]: tensor
// CHECK-NEXT: circle.relu(%[[X]])

// -----

// Moved by 128 on the way: what follows starts before that, and reals become the moved codes at once.
func.func @moved(%x: tensor<4xf32>, %y: tensor<4x!quant.uniform<u8:f32, 0.5:128>>) -> (tensor<4x!quant.uniform<u8:f32, 0.5:131>>, tensor<4xf32>, tensor<4x!quant.uniform<i8:f32, 0.25>>) {
  %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
  %1 = circle.quantize(%0) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<u8:f32, 0.5:131>>
  %2 = circle.quantize(%y) : (tensor<4x!quant.uniform<u8:f32, 0.5:128>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %3 = circle.dequantize(%2) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4xf32>
  %4 = circle.quantize(%2) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.25>>
  func.return %1, %3, %4 : tensor<4x!quant.uniform<u8:f32, 0.5:131>>, tensor<4xf32>, tensor<4x!quant.uniform<i8:f32, 0.25>>
}
// CHECK: func.func @moved(%[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor
// CHECK-NEXT: circle.quantize(%[[X]]) : (tensor<4xf32>) -> tensor<4x!quant.uniform<u8:f32, 0.5:131>>
// CHECK-NEXT: circle.dequantize(%[[Y]])
// CHECK-NEXT: circle.quantize(%[[Y]])
// CHECK-NEXT: func.return

// -----

// What only rounds a second time stays, unless it may go.
func.func @rounded(%x: tensor<4xf32>) -> (tensor<4x!quant.uniform<i8:f32, 0.25>>, tensor<4x!quant.uniform<i16:f32, 0.25>>) {
  %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %1 = circle.quantize(%0) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.25>>
  %2 = circle.dequantize(%1) : (tensor<4x!quant.uniform<i8:f32, 0.25>>) -> tensor<4xf32>
  %3 = circle.quantize(%2) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 0.25>>
  func.return %1, %3 : tensor<4x!quant.uniform<i8:f32, 0.25>>, tensor<4x!quant.uniform<i16:f32, 0.25>>
}
// CHECK: func.func @rounded(%[[X:.*]]: tensor
// CHECK-NEXT: %[[A:.*]] = circle.quantize(%[[X]])
// CHECK-NEXT: %[[B:.*]] = circle.quantize(%[[A]])
// CHECK-NEXT: %[[C:.*]] = circle.dequantize(%[[B]])
// CHECK-NEXT: circle.quantize(%[[C]])
// ONCE: func.func @rounded(%[[X:.*]]: tensor
// ONCE-NEXT: circle.quantize(%[[X]]) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.25>>
// ONCE-NEXT: circle.quantize(%[[X]]) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 0.25>>

// -----

// Rounding a real number is no detour, and 32-bit codes do not fit into one.
func.func @kept(%x: tensor<4xf32>, %y: tensor<4x!quant.uniform<i32:f32, 0.5>>) -> (tensor<4xf32>, tensor<4x!quant.uniform<i32:f32, 0.5>>) {
  %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %1 = circle.dequantize(%0) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4xf32>
  %2 = circle.dequantize(%y) : (tensor<4x!quant.uniform<i32:f32, 0.5>>) -> tensor<4xf32>
  %3 = circle.quantize(%2) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i32:f32, 0.5>>
  func.return %1, %3 : tensor<4xf32>, tensor<4x!quant.uniform<i32:f32, 0.5>>
}
// CHECK: func.func @kept(
// CHECK-NEXT: %[[A:.*]] = circle.quantize(
// CHECK-NEXT: circle.dequantize(%[[A]])
// CHECK-NEXT: %[[B:.*]] = circle.dequantize(
// CHECK-NEXT: circle.quantize(%[[B]])
