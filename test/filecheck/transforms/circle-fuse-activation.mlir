// RUN: odc-opt %s --split-input-file --circle-fuse-activation | filecheck %s
// RUN: odc-opt %s --split-input-file --circle-fuse-activation='tanh=true' | filecheck %s --check-prefix TANH

// The operator takes the activation and its name.
func.func @layer(%x: tensor<1x4xf32>) -> tensor<1x2xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0] : tensor<2x4xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x4xf32>, tensor<2x4xf32>) -> tensor<1x2xf32> loc("inner")
  %1 = circle.relu6(%0) : (tensor<1x2xf32>) -> tensor<1x2xf32> loc("outer")
  func.return %1 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @layer(
// CHECK: %[[Y:.*]] = circle.fully_connected(%{{.*}}) {activation = relu6}
// CHECK-NEXT: func.return %[[Y]]

// -----

// Two clamps that are one, and two that are not.
func.func @clamps(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = circle.add(%x, %x) {activation = relu} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.relu6(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.mul(%x, %x) {activation = relu} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = circle.relu_n1_to_1(%2) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %1, %3 : tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func @clamps(
// CHECK: circle.add(%{{.*}}) {activation = relu6}
// CHECK: circle.mul(%{{.*}}) {activation = relu}
// CHECK: circle.relu_n1_to_1

// -----

// TANH only where readers are known to have it.
func.func @tanh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = circle.add(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.tanh(%0) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %1 : tensor<4xf32>
}
// CHECK-LABEL: func.func @tanh(
// CHECK: circle.tanh
// TANH-LABEL: func.func @tanh(
// TANH: circle.add(%{{.*}}) {activation = tanh}
// TANH-NOT: circle.tanh

// -----

// Codes: with the same parameters the clamp is the same, with others the activation rescales.
func.func @codes(%x: tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> (tensor<4x!quant.uniform<i8:f32, 0.25:1>>, tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = circle.add(%x, %x) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>, tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.25:1>>
  %1 = circle.relu(%0) : (tensor<4x!quant.uniform<i8:f32, 0.25:1>>) -> tensor<4x!quant.uniform<i8:f32, 0.25:1>>
  %2 = circle.mul(%x, %x) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>, tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.25:1>>
  %3 = circle.relu(%2) : (tensor<4x!quant.uniform<i8:f32, 0.25:1>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return %1, %3 : tensor<4x!quant.uniform<i8:f32, 0.25:1>>, tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @codes(
// CHECK: circle.add(%{{.*}}) {activation = relu}
// CHECK: circle.mul(%{{[^)]*}}) :
// CHECK: circle.relu

// -----

// Left alone: another reader, a producer without fused activation, an argument.
func.func @left(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = circle.add(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.relu(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.maximum(%x, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = circle.relu(%2) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = circle.relu(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0, %1, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func @left(
// CHECK: circle.relu
// CHECK: circle.maximum
// CHECK: circle.relu
// CHECK: circle.relu
