// RUN: odc-opt %s --split-input-file --circle-fuse-channel-shuffle | filecheck %s

// Another layer reads the channels: its weights come in the order in which they are computed.
func.func @between_layers(%0: tensor<1x4x4x1xf32>) -> tensor<1x4x4x1xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<4x1x1x1xf32>
  %n = circle.none
  %x = circle.conv_2d(%0, %w, %n) {padding = same, stride = [1, 1]} : (tensor<1x4x4x1xf32>, tensor<4x1x1x1xf32>, none) -> tensor<1x4x4x4xf32>
  %a = circle.const [1, 4, 4, 2, 2] : tensor<5xi32>
  %b = circle.reshape(%x, %a) {new_shape = [1, 4, 4, 2, 2]} : (tensor<1x4x4x4xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %c = circle.const [0, 1, 2, 4, 3] : tensor<5xi32>
  %d = circle.transpose(%b, %c) : (tensor<1x4x4x2x2xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %e = circle.const [1, 4, 4, 4] : tensor<4xi32>
  %f = circle.reshape(%d, %e) {new_shape = [1, 4, 4, 4]} : (tensor<1x4x4x2x2xf32>, tensor<4xi32>) -> tensor<1x4x4x4xf32>
  %v = circle.const [5.0, 6.0, 7.0, 8.0] : tensor<1x1x1x4xf32>
  %y = circle.conv_2d(%f, %v, %n) {padding = same, stride = [1, 1]} : (tensor<1x4x4x4xf32>, tensor<1x1x1x4xf32>, none) -> tensor<1x4x4x1xf32>
  func.return %y : tensor<1x4x4x1xf32>
}
// CHECK-LABEL: func.func @between_layers(
// CHECK-NOT: circle.transpose
// CHECK: circle.const [5.0, 7.0, 6.0, 8.0]
// CHECK-NOT: circle.transpose
// CHECK: func.return

// -----

// A function reads them in the order of the model: the layer computes them so.
func.func @behind_a_layer(%0: tensor<1x4x4x1xf32>) -> tensor<1x4x4x4xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<4x1x1x1xf32>
  %n = circle.none
  %x = circle.conv_2d(%0, %w, %n) {padding = same, stride = [1, 1]} : (tensor<1x4x4x1xf32>, tensor<4x1x1x1xf32>, none) -> tensor<1x4x4x4xf32>
  %a = circle.const [1, 4, 4, 2, 2] : tensor<5xi32>
  %b = circle.reshape(%x, %a) {new_shape = [1, 4, 4, 2, 2]} : (tensor<1x4x4x4xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %c = circle.const [0, 1, 2, 4, 3] : tensor<5xi32>
  %d = circle.transpose(%b, %c) : (tensor<1x4x4x2x2xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %e = circle.const [1, 4, 4, 4] : tensor<4xi32>
  %f = circle.reshape(%d, %e) {new_shape = [1, 4, 4, 4]} : (tensor<1x4x4x2x2xf32>, tensor<4xi32>) -> tensor<1x4x4x4xf32>
  %y = circle.relu(%f) : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  func.return %y : tensor<1x4x4x4xf32>
}
// CHECK-LABEL: func.func @behind_a_layer(
// CHECK: circle.const [1.0, 3.0, 2.0, 4.0]
// CHECK-NOT: circle.transpose
// CHECK: func.return

// -----

// No layer can take the order.
func.func @no_layer(%0: tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32> {
  %a = circle.const [1, 4, 4, 2, 2] : tensor<5xi32>
  %b = circle.reshape(%0, %a) {new_shape = [1, 4, 4, 2, 2]} : (tensor<1x4x4x4xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %c = circle.const [0, 1, 2, 4, 3] : tensor<5xi32>
  %d = circle.transpose(%b, %c) : (tensor<1x4x4x2x2xf32>, tensor<5xi32>) -> tensor<1x4x4x2x2xf32>
  %e = circle.const [1, 4, 4, 4] : tensor<4xi32>
  %f = circle.reshape(%d, %e) {new_shape = [1, 4, 4, 4]} : (tensor<1x4x4x2x2xf32>, tensor<4xi32>) -> tensor<1x4x4x4xf32>
  %y = circle.relu(%f) : (tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  func.return %y : tensor<1x4x4x4xf32>
}
// CHECK-LABEL: func.func @no_layer(
// CHECK: circle.transpose
// CHECK: func.return
