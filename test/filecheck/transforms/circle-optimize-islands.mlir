// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=replace_islands_with_integers' | filecheck %s

// Operators of 16-bit codes compute on them; a real constant becomes codes.
func.func @replace_islands_with_integers(%x: tensor<4x!quant.uniform<i16:f32, 0.5>>) -> (tensor<4x!quant.uniform<i16:f32, 0.5>>, tensor<4x!quant.uniform<i16:f32, 0.25>>, tensor<4x!quant.uniform<i16:f32, 0.5>>) {
  %c = circle.const [2.0, -1.0, 0.0, 1.0] : tensor<4xf32>
  %0 = circle.dequantize(%x) : (tensor<4x!quant.uniform<i16:f32, 0.5>>) -> tensor<4xf32>
  %1 = circle.leaky_relu(%0) {alpha = 0.5} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.quantize(%1) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 0.5>>
  %3 = circle.quantize(%1) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 0.25>>
  %4 = circle.mul(%0, %c) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %5 = circle.quantize(%4) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 0.5>>
  func.return %2, %3, %5 : tensor<4x!quant.uniform<i16:f32, 0.5>>, tensor<4x!quant.uniform<i16:f32, 0.25>>, tensor<4x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @replace_islands_with_integers(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK-NEXT: %[[A:.*]] = circle.leaky_relu(%[[X]]) {alpha = 0.5} : {{.*}} -> tensor<4x!quant.uniform<i16:f32, 0.5>>
// CHECK-NEXT: %[[B:.*]] = circle.leaky_relu(%[[X]]) {alpha = 0.5} : {{.*}} -> tensor<4x!quant.uniform<i16:f32, 0.25>>
// CHECK-NEXT: %[[C:.*]] = circle.const [32767, -16384, 0, 16384] : tensor<4x!quant.uniform<i16:f32, 6.103702e-05>>
// CHECK-NEXT: %[[D:.*]] = circle.mul(%[[X]], %[[C]])
// CHECK-NEXT: func.return %[[A]], %[[B]], %[[D]]

// -----

// NEG of integers is no operator on codes: it becomes a product.
func.func @negative(%x: tensor<4x!quant.uniform<i16:f32, 0.5>>) -> tensor<4x!quant.uniform<i16:f32, 0.25>> {
  %0 = circle.dequantize(%x) : (tensor<4x!quant.uniform<i16:f32, 0.5>>) -> tensor<4xf32>
  %1 = circle.neg(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.quantize(%1) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 0.25>>
  func.return %2 : tensor<4x!quant.uniform<i16:f32, 0.25>>
}
// CHECK-LABEL: func.func @negative(
// CHECK-NEXT: %[[C:.*]] = circle.const [-32767] : tensor<!quant.uniform<i16:f32, 3.051851e-05>>
// CHECK-NEXT: circle.mul(%{{.*}}, %[[C]])

// -----

// HARD_SWISH becomes x * (relu6(x + 3) / 6): its interpolated table is inexact near -3 and 3.
func.func @bends(%x: tensor<4x!quant.uniform<i16:f32, 0.0006>>) -> tensor<4x!quant.uniform<i16:f32, 0.0006>> {
  %0 = circle.dequantize(%x) : (tensor<4x!quant.uniform<i16:f32, 0.0006>>) -> tensor<4xf32>
  %1 = circle.hard_swish(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.quantize(%1) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 0.0006>>
  func.return %2 : tensor<4x!quant.uniform<i16:f32, 0.0006>>
}
// CHECK-LABEL: func.func @bends(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK-NEXT: %[[THREE:.*]] = circle.const [32767] : tensor<!quant.uniform<i16:f32, 9.155553e-05>>
// CHECK-NEXT: %[[SIXTH:.*]] = circle.const [32767] : tensor<!quant.uniform<i16:f32, 5.0864182e-06>>
// CHECK-NEXT: %[[GATE:.*]] = circle.add(%[[X]], %[[THREE]]) {{.*}}relu6{{.*}} -> tensor<4x!quant.uniform<i16:f32, 0.00018311106>>
// CHECK-NEXT: %[[SCALED:.*]] = circle.mul(%[[GATE]], %[[SIXTH]]) {{.*}} -> tensor<4x!quant.uniform<i16:f32, 3.051851e-05>>
// CHECK-NEXT: circle.mul(%[[X]], %[[SCALED]]) : {{.*}} -> tensor<4x!quant.uniform<i16:f32, 0.0006>>

// -----

// Functions that would change a result by more than one code stay.
func.func @inexact(%x: tensor<4x!quant.uniform<i16:f32, 0.0002>>) -> tensor<4x!quant.uniform<i16:f32, 0.0002>> {
  %0 = circle.dequantize(%x) : (tensor<4x!quant.uniform<i16:f32, 0.0002>>) -> tensor<4xf32>
  %1 = circle.gelu(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.quantize(%1) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 0.0002>>
  func.return %2 : tensor<4x!quant.uniform<i16:f32, 0.0002>>
}
// CHECK-LABEL: func.func @inexact(
// CHECK: circle.gelu({{.*}} -> tensor<4xf32>

// -----

// Functions of one 8-bit operand stay, and so do quotients, operands of another type, and ends without codes.
func.func @kept(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>, %z: tensor<4x!quant.uniform<i16:f32, 0.5>>) -> (tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = circle.dequantize(%x) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4xf32>
  %1 = circle.dequantize(%z) : (tensor<4x!quant.uniform<i16:f32, 0.5>>) -> tensor<4xf32>
  %2 = circle.gelu(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = circle.quantize(%2) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %4 = circle.div(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %5 = circle.quantize(%4) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %6 = circle.add(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %7 = circle.quantize(%6) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return %3, %5, %7 : tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @kept(
// CHECK: circle.gelu({{.*}} -> tensor<4xf32>
// CHECK: circle.div({{.*}} -> tensor<4xf32>
// CHECK: circle.add({{.*}} -> tensor<4xf32>
