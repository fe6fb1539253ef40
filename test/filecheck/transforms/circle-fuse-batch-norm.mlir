// RUN: odc-opt %s --split-input-file --circle-fuse-batch-norm | filecheck %s

// Product and sum behind a layer go into its weights and bias; the activation of the last one stays.
func.func @behind(%x: tensor<1x2x2x1xf32>) -> tensor<1x2x2x2xf32> {
  %w = circle.const [1.0, 2.0] : tensor<2x1x1x1xf32>
  %b = circle.const [3.0, 4.0] : tensor<2xf32>
  %gamma = circle.const [10.0, 100.0] : tensor<2xf32>
  %beta = circle.const [0.5, -0.5] : tensor<1x1x1x2xf32>
  %0 = circle.conv_2d(%x, %w, %b) {padding = same, stride = [1, 1]} : (tensor<1x2x2x1xf32>, tensor<2x1x1x1xf32>, tensor<2xf32>) -> tensor<1x2x2x2xf32>
  %1 = circle.mul(%0, %gamma) : (tensor<1x2x2x2xf32>, tensor<2xf32>) -> tensor<1x2x2x2xf32>
  %2 = circle.add(%beta, %1) {activation = relu6} : (tensor<1x1x1x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  func.return %2 : tensor<1x2x2x2xf32>
}
// CHECK-LABEL: func.func @behind(
// CHECK-DAG: %[[W:.*]] = circle.const [10.0, 200.0] : tensor<2x1x1x1xf32>
// CHECK-DAG: %[[B:.*]] = circle.const [30.5, 399.5] : tensor<2xf32>
// CHECK: %[[Y:.*]] = circle.conv_2d(%{{.*}}, %[[W]], %[[B]]) {padding = same, stride = [1, 1], activation = relu6}
// CHECK-NEXT: func.return %[[Y]]

// -----

// A layer without bias gets one when something is added, and none for a product. Depthwise weights have channels last.
func.func @without_bias(%x: tensor<1x2x2x2xf32>) -> (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) {
  %w = circle.const [1.0, 2.0] : tensor<1x1x1x2xf32>
  %c = circle.const [3.0, 5.0] : tensor<2xf32>
  %0 = circle.depthwise_conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x2x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x2x2x2xf32>
  %1 = circle.mul(%0, %c) : (tensor<1x2x2x2xf32>, tensor<2xf32>) -> tensor<1x2x2x2xf32>
  %2 = circle.depthwise_conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x2x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x2x2x2xf32>
  %3 = circle.sub(%c, %2) : (tensor<2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  func.return %1, %3 : tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>
}
// CHECK-LABEL: func.func @without_bias(
// CHECK: %[[W:.*]] = circle.const [3.0, 10.0] : tensor<1x1x1x2xf32>
// CHECK: circle.depthwise_conv_2d(%{{[^,]*}}, %[[W]])
// CHECK: %[[N:.*]] = circle.const [-1.0, -2.0] : tensor<1x1x1x2xf32>
// CHECK: %[[B:.*]] = circle.const [3.0, 5.0] : tensor<2xf32>
// CHECK: circle.depthwise_conv_2d(%{{[^,]*}}, %[[N]], %[[B]])

// -----

// In front of a layer: a shift of the input is a shift of the sums.
func.func @before(%x: tensor<1x2xf32>) -> tensor<1x1xf32> {
  %w = circle.const [1.0, 2.0] : tensor<1x2xf32>
  %mean = circle.const [1.0, 10.0] : tensor<2xf32>
  %deviation = circle.const [2.0, 4.0] : tensor<2xf32>
  %0 = circle.sub(%x, %mean) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %1 = circle.div(%0, %deviation) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %2 = circle.fully_connected(%1, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %2 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @before(
// CHECK-DAG: %[[W:.*]] = circle.const [0.5, 0.5] : tensor<1x2xf32>
// CHECK-DAG: %[[B:.*]] = circle.const [-5.5] : tensor<1xf32>
// CHECK: %[[Y:.*]] = circle.fully_connected(%{{[^,]*}}, %[[W]], %[[B]])
// CHECK-NEXT: func.return %[[Y]]

// -----

// Padding is zero behind a sum: only the product moves into a padded convolution.
func.func @padded(%x: tensor<1x2x2x1xf32>) -> tensor<1x2x2x1xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<1x2x2x1xf32>
  %c = circle.const [2.0] : tensor<1xf32>
  %0 = circle.add(%x, %c) : (tensor<1x2x2x1xf32>, tensor<1xf32>) -> tensor<1x2x2x1xf32>
  %1 = circle.mul(%0, %c) : (tensor<1x2x2x1xf32>, tensor<1xf32>) -> tensor<1x2x2x1xf32>
  %2 = circle.conv_2d(%1, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x2x1xf32>, tensor<1x2x2x1xf32>) -> tensor<1x2x2x1xf32>
  func.return %2 : tensor<1x2x2x1xf32>
}
// CHECK-LABEL: func.func @padded(
// CHECK: %[[S:.*]] = circle.add
// CHECK: %[[W:.*]] = circle.const [2.0, 4.0, 6.0, 8.0]
// CHECK: circle.conv_2d(%[[S]], %[[W]])

// -----

// Left alone: another reader, an activation between, a constant per pixel, codes.
func.func @left(%x: tensor<1x2x2x1xf32>, %q: tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> (tensor<1x2x2x1xf32>, tensor<1x2x2x1xf32>, tensor<1x2x2x1xf32>, tensor<1x2x2x1xf32>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>) {
  %w = circle.const [3.0] : tensor<1x1x1x1xf32>
  %c = circle.const [2.0] : tensor<1xf32>
  %pixels = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<1x2x2x1xf32>
  %0 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x2x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x1xf32>
  %1 = circle.mul(%0, %c) : (tensor<1x2x2x1xf32>, tensor<1xf32>) -> tensor<1x2x2x1xf32>
  %2 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1], activation = relu} : (tensor<1x2x2x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x1xf32>
  %3 = circle.add(%2, %c) : (tensor<1x2x2x1xf32>, tensor<1xf32>) -> tensor<1x2x2x1xf32>
  %4 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x2x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x1xf32>
  %5 = circle.mul(%4, %pixels) : (tensor<1x2x2x1xf32>, tensor<1x2x2x1xf32>) -> tensor<1x2x2x1xf32>
  %qw = circle.const [1, 2, 3, 4] : tensor<1x4x!quant.uniform<i8:f32, 1.0>>
  %qc = circle.const [2] : tensor<1x!quant.uniform<i8:f32, 0.5>>
  %6 = circle.fully_connected(%q, %qw) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x!quant.uniform<i8:f32, 1.0>>) -> tensor<1x1x!quant.uniform<i8:f32, 0.5>>
  %7 = circle.mul(%6, %qc) : (tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x!quant.uniform<i8:f32, 0.5>>
  func.return %0, %1, %3, %5, %7 : tensor<1x2x2x1xf32>, tensor<1x2x2x1xf32>, tensor<1x2x2x1xf32>, tensor<1x2x2x1xf32>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @left(
// CHECK: circle.conv_2d
// CHECK: circle.mul
// CHECK: circle.conv_2d
// CHECK: circle.add
// CHECK: circle.conv_2d
// CHECK: circle.mul
// CHECK: circle.fully_connected
// CHECK: circle.mul

// -----

// Left alone because weights have a given type, which a product does not fit,
builtin.module attributes {quant.given = {weights = !quant.uniform<i8:f32, 0.5>}} {
func.func @given_weights(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<2x2xf32> loc("weights")
  %b = circle.const [1.0, 2.0] : tensor<2xf32> loc("bias")
  %c = circle.const [3.0, 5.0] : tensor<2xf32>
  %1 = circle.mul(%x, %c) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("product")
  %2 = circle.fully_connected(%1, %w, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("layer")
  func.return %2 : tensor<1x2xf32>
}
}
// CHECK-LABEL: func.func @given_weights(
// CHECK: circle.mul
// CHECK: circle.fully_connected

// -----

// or because the value between is rounded.
builtin.module attributes {quant.given = {product = !quant.uniform<i8:f32, 0.5>}} {
func.func @rounded_product(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<2x2xf32> loc("weights")
  %b = circle.const [1.0, 2.0] : tensor<2xf32> loc("bias")
  %c = circle.const [3.0, 5.0] : tensor<2xf32>
  %1 = circle.mul(%x, %c) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("product")
  %2 = circle.fully_connected(%1, %w, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("layer")
  func.return %2 : tensor<1x2xf32>
}
}
// CHECK-LABEL: func.func @rounded_product(
// CHECK: circle.mul
// CHECK: circle.fully_connected

// -----

builtin.module attributes {quant.given = {layer = !quant.uniform<i8:f32, 0.5>}} {
func.func @rounded_layer(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<2x2xf32> loc("weights")
  %b = circle.const [1.0, 2.0] : tensor<2xf32> loc("bias")
  %c = circle.const [3.0, 5.0] : tensor<2xf32>
  %1 = circle.fully_connected(%x, %w, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("layer")
  %2 = circle.add(%1, %c) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("sum")
  func.return %2 : tensor<1x2xf32>
}
}
// CHECK-LABEL: func.func @rounded_layer(
// CHECK: circle.fully_connected
// CHECK: circle.add

// -----

// A sum does not change the weights.
builtin.module attributes {quant.given = {weights = !quant.uniform<i8:f32, 0.5>}} {
func.func @sum(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<2x2xf32> loc("weights")
  %b = circle.const [1.0, 2.0] : tensor<2xf32> loc("bias")
  %c = circle.const [3.0, 5.0] : tensor<2xf32>
  %1 = circle.fully_connected(%x, %w, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("layer")
  %2 = circle.add(%1, %c) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("sum")
  func.return %2 : tensor<1x2xf32>
}
}
// CHECK-LABEL: func.func @sum(
// CHECK: circle.const [4.0, 7.0] : tensor<2xf32>
// CHECK: circle.fully_connected
// CHECK-NOT: circle.add
