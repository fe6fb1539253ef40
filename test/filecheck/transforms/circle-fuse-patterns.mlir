// RUN: odc-opt %s --split-input-file --circle-fuse-patterns | filecheck %s

// x * relu6(x + 3) / 6, with the factors in another order and the clamp fused.
func.func @hard_swish(%x: tensor<1x8xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>) {
  %three = circle.const [3.0] : tensor<f32>
  %sixth = circle.const [0.16666667] : tensor<f32>
  %six = circle.const [6.0] : tensor<f32>
  %0 = circle.add(%x, %three) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %1 = circle.relu6(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %2 = circle.mul(%x, %1) : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  %3 = circle.mul(%2, %sixth) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32> loc("y")
  %4 = circle.add(%three, %x) {activation = relu6} : (tensor<f32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  %5 = circle.div(%4, %six) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %6 = circle.mul(%5, %x) : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  func.return %3, %6 : tensor<1x8xf32>, tensor<1x8xf32>
}
// CHECK-LABEL: func.func @hard_swish(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK-NEXT: circle.hard_swish(%[[X]])
// CHECK-NEXT: circle.hard_swish(%[[X]])
// CHECK-NEXT: func.return

// -----

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))), and the one with erf.
func.func @gelu(%x: tensor<1x8xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>) {
  %half = circle.const [0.5] : tensor<f32>
  %one = circle.const [1.0] : tensor<f32>
  %three = circle.const [3.0] : tensor<f32>
  %c = circle.const [0.044715] : tensor<f32>
  %r = circle.const [0.7978846] : tensor<f32>
  %root = circle.const [0.70710678] : tensor<f32>
  %0 = circle.pow(%x, %three) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %1 = circle.mul(%0, %c) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %2 = circle.add(%x, %1) : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  %3 = circle.mul(%r, %2) : (tensor<f32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  %4 = circle.tanh(%3) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %5 = circle.add(%4, %one) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %6 = circle.mul(%x, %5) : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  %7 = circle.mul(%half, %6) : (tensor<f32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  %8 = circle.mul(%x, %root) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %9 = circle.custom(%8) {custom_code = "Erf"} : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %10 = circle.add(%one, %9) : (tensor<f32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  %11 = circle.mul(%x, %half) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %12 = circle.mul(%11, %10) : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
  func.return %7, %12 : tensor<1x8xf32>, tensor<1x8xf32>
}
// CHECK-LABEL: func.func @gelu(
// CHECK: circle.gelu(%{{.*}}) {approximate = true}
// CHECK: circle.gelu(%{{[^)]*}}) :

// -----

// Clamps by constants.
func.func @clamps(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %zero = circle.const [0.0] : tensor<f32>
  %one = circle.const [1.0] : tensor<f32>
  %minus = circle.const [-1.0] : tensor<f32>
  %six = circle.const [6.0] : tensor<f32>
  %0 = circle.minimum(%x, %six) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = circle.maximum(%0, %zero) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = circle.minimum(%x, %six) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %3 = circle.relu(%2) : (tensor<8xf32>) -> tensor<8xf32>
  %4 = circle.maximum(%minus, %x) : (tensor<f32>, tensor<8xf32>) -> tensor<8xf32>
  %5 = circle.minimum(%4, %one) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %6 = circle.maximum(%x, %one) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  func.return %1, %3, %5, %6 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
// CHECK-LABEL: func.func @clamps(
// CHECK: circle.relu6
// CHECK-NEXT: circle.relu6
// CHECK-NEXT: circle.relu_n1_to_1
// CHECK-NEXT: circle.maximum

// -----

// Slopes below zero.
func.func @slopes(%x: tensor<1x2x2x2xf32>) -> (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) {
  %a = circle.const [0.25] : tensor<f32>
  %half = circle.const [0.5] : tensor<f32>
  %slopes = circle.const [0.5, -0.25] : tensor<2xf32>
  %0 = circle.mul(%x, %a) : (tensor<1x2x2x2xf32>, tensor<f32>) -> tensor<1x2x2x2xf32>
  %1 = circle.maximum(%x, %0) : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %2 = circle.relu(%x) : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %3 = circle.abs(%x) : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %4 = circle.sub(%x, %3) : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %5 = circle.mul(%4, %slopes) : (tensor<1x2x2x2xf32>, tensor<2xf32>) -> tensor<1x2x2x2xf32>
  %6 = circle.mul(%5, %half) : (tensor<1x2x2x2xf32>, tensor<f32>) -> tensor<1x2x2x2xf32>
  %7 = circle.add(%2, %6) : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %8 = circle.neg(%x) : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %9 = circle.relu(%8) : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %10 = circle.mul(%9, %slopes) : (tensor<1x2x2x2xf32>, tensor<2xf32>) -> tensor<1x2x2x2xf32>
  %11 = circle.sub(%2, %10) : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  func.return %1, %7, %11 : tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>
}
// CHECK-LABEL: func.func @slopes(
// CHECK: circle.leaky_relu(%{{.*}}) {alpha = 0.25}
// CHECK: %[[A:.*]] = circle.const [0.5, -0.25] : tensor<1x1x2xf32>
// CHECK: circle.prelu(%{{.*}}, %[[A]])
// CHECK: %[[B:.*]] = circle.const [0.5, -0.25] : tensor<1x1x2xf32>
// CHECK: circle.prelu(%{{.*}}, %[[B]])

// -----

// Quotients by square roots.
func.func @roots(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %one = circle.const [1.0] : tensor<f32>
  %0 = circle.sqrt(%y) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = circle.div(%x, %0) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %2 = circle.sqrt(%y) : (tensor<8xf32>) -> tensor<8xf32>
  %3 = circle.div(%one, %2) : (tensor<f32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %1, %3 : tensor<8xf32>, tensor<8xf32>
}
// CHECK-LABEL: func.func @roots(
// CHECK: %[[R:.*]] = circle.rsqrt
// CHECK-NEXT: circle.mul(%{{.*}}, %[[R]])
// CHECK-NEXT: circle.rsqrt
// CHECK-NEXT: func.return

// -----

// Left alone: another constant, another operand, codes.
func.func @left(%x: tensor<8xf32>, %y: tensor<8xf32>, %q: tensor<8x!quant.uniform<i8:f32, 0.5>>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x!quant.uniform<i8:f32, 0.5>>) {
  %three = circle.const [3.0] : tensor<f32>
  %sixth = circle.const [0.16] : tensor<f32>
  %good = circle.const [0.16666667] : tensor<f32>
  %steep = circle.const [1.5] : tensor<f32>
  %zero = circle.const [0] : tensor<1x!quant.uniform<i8:f32, 0.5>>
  %0 = circle.add(%x, %three) {activation = relu6} : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = circle.mul(%x, %0) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %2 = circle.mul(%1, %sixth) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %3 = circle.mul(%y, %0) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %4 = circle.mul(%3, %good) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %5 = circle.mul(%x, %steep) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %6 = circle.maximum(%x, %5) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %7 = circle.maximum(%q, %zero) : (tensor<8x!quant.uniform<i8:f32, 0.5>>, tensor<1x!quant.uniform<i8:f32, 0.5>>) -> tensor<8x!quant.uniform<i8:f32, 0.5>>
  func.return %2, %4, %6, %7 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @left(
// CHECK-NOT: circle.hard_swish
// CHECK-NOT: circle.leaky_relu
// CHECK: circle.maximum
// CHECK: circle.maximum

// -----

// Two layers of the same input whose results are added, as the two heads of a distilled classifier; others stay.
func.func @heads(%x: tensor<1x2xf32>, %z: tensor<1x2xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>) {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<2x2xf32>
  %v = circle.const [0.5, 0.5, 0.5, 1.0] : tensor<2x2xf32>
  %b = circle.const [1.0, 2.0] : tensor<2xf32>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %1 = circle.fully_connected(%x, %v, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %2 = circle.add(%0, %1) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  %3 = circle.fully_connected(%x, %w, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %4 = circle.fully_connected(%z, %v, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %5 = circle.add(%3, %4) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %2, %5 : tensor<1x2xf32>, tensor<1x2xf32>
}
// CHECK-LABEL: func.func @heads(
// CHECK: %[[W:.*]] = circle.const [1.5, 2.5, 3.5, 5.0] : tensor<2x2xf32>
// CHECK: %[[B:.*]] = circle.const [2.0, 4.0] : tensor<2xf32>
// CHECK: circle.fully_connected(%{{.*}}, %[[W]], %[[B]])
// CHECK: circle.fully_connected
// CHECK: circle.fully_connected
// CHECK: circle.add

// -----

// A quotient by several constants is a product; others stay: one constant, a divisor without reciprocal.
func.func @quotients(%x: tensor<1x2xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>) {
  %c = circle.const [2.0, 4.0] : tensor<2xf32>
  %one = circle.const [2.0] : tensor<f32>
  %zero = circle.const [2.0, 0.0] : tensor<2xf32>
  %0 = circle.div(%x, %c) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %1 = circle.div(%x, %one) : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32>
  %2 = circle.div(%x, %zero) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  func.return %0, %1, %2 : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>
}
// CHECK-LABEL: func.func @quotients(
// CHECK: %[[C:.*]] = circle.const [0.5, 0.25] : tensor<2xf32>
// CHECK-NEXT: circle.mul(%{{.*}}, %[[C]])
// CHECK: circle.div
// CHECK: circle.div

// -----

// A layer with computed weights is a product of matrices, and its bias is added.
func.func @computed(%x: tensor<1x2xf32>, %w: tensor<3x2xf32>, %b: tensor<3xf32>) -> tensor<1x3xf32> {
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2xf32>, tensor<3x2xf32>, tensor<3xf32>) -> tensor<1x3xf32>
  func.return %0 : tensor<1x3xf32>
}
// CHECK-LABEL: func.func @computed(
// CHECK: %[[P:.*]] = circle.batch_matmul(%x, %w) {adjoint_rhs = true}
// CHECK-NEXT: circle.add(%[[P]], %b)
