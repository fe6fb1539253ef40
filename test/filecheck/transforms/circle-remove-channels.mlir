// RUN: odc-opt %s --split-input-file --circle-remove-channels | filecheck %s

// Weights 0 and a clamp: channels 1 and 3 are the code of 0 for every input, and go through a depthwise layer with
// padding. The last layer's result is what the function returns: it keeps its channels.
func.func @chain(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>> {
  %w = circle.const #circle.blob<"0x0102000003040000"> : tensor<4x1x1x2x!quant.uniform<i8:f32, 0.5>>
  %b = circle.const [10, -20, 30, 0] : tensor<4xi32>
  %0 = circle.conv_2d(%x, %w, %b) {padding = valid, stride = [1, 1], activation = relu6} : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>, tensor<4x1x1x2x!quant.uniform<i8:f32, 0.5>>, tensor<4xi32>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5:-128>>
  %v = circle.const #circle.blob<"0x010203040102030401020304010203040102030401020304010203040102030401020304"> : tensor<1x3x3x4x!quant.uniform<i8:f32:3, {0.5, 0.25, 0.125, 0.0625}>>
  %c = circle.const [1, 2, 3, -4] : tensor<4xi32>
  %1 = circle.depthwise_conv_2d(%0, %v, %c) {padding = same, stride = [1, 1], depth_multiplier = 1, activation = relu} : (tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5:-128>>, tensor<1x3x3x4x!quant.uniform<i8:f32:3, {0.5, 0.25, 0.125, 0.0625}>>, tensor<4xi32>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 1.0:-128>>
  %u = circle.const #circle.blob<"0x0102030405060708"> : tensor<2x1x1x4x!quant.uniform<i8:f32, 0.5>>
  %d = circle.const [7, 8] : tensor<2xi32>
  %2 = circle.conv_2d(%1, %u, %d) {padding = valid, stride = [1, 1]} : (tensor<1x4x4x4x!quant.uniform<i8:f32, 1.0:-128>>, tensor<2x1x1x4x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>
  func.return %2 : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @chain(
// CHECK: %[[W:.*]] = circle.const [1, 2, 3, 4] : tensor<2x1x1x2x
// CHECK: %[[B:.*]] = circle.const [10, 30] : tensor<2xi32>
// CHECK: %[[X:.*]] = circle.conv_2d(%{{.*}}, %[[W]], %[[B]]) {{.*}} -> tensor<1x4x4x2x
// CHECK: %[[V:.*]] = circle.const {{.*}}0x010301030103010301030103010301030103"> : tensor<1x3x3x2x!quant.uniform<i8:f32:3, {0.5, 0.125}>>
// CHECK: %[[C:.*]] = circle.const [1, 3] : tensor<2xi32>
// CHECK: %[[Y:.*]] = circle.depthwise_conv_2d(%[[X]], %[[V]], %[[C]]) {{.*}} -> tensor<1x4x4x2x
// CHECK: %[[U:.*]] = circle.const [1, 3, 5, 7] : tensor<2x1x1x2x
// CHECK: %[[D:.*]] = circle.const [7, 8] : tensor<2xi32>
// CHECK: circle.conv_2d(%[[Y]], %[[U]], %[[D]]) {{.*}} -> tensor<1x4x4x2x

// -----

// A code that does not stand for 0 goes into the bias of a layer that reads no padding: 5 times the weights 2 and 5.
func.func @into_the_bias(%x: tensor<1x3x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x010203000000040506"> : tensor<3x3x!quant.uniform<i8:f32, 0.5>>
  %b = circle.const [1, 10, 3] : tensor<3xi32>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x3x!quant.uniform<i8:f32, 0.5>>, tensor<3x3x!quant.uniform<i8:f32, 0.5>>, tensor<3xi32>) -> tensor<1x3x!quant.uniform<i8:f32, 0.5>>
  %v = circle.const #circle.blob<"0x010203040506"> : tensor<2x3x!quant.uniform<i8:f32, 0.5>>
  %c = circle.const [100, 200] : tensor<2xi32>
  %1 = circle.fully_connected(%0, %v, %c) : (tensor<1x3x!quant.uniform<i8:f32, 0.5>>, tensor<2x3x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<1x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @into_the_bias(
// CHECK: circle.const [1, 2, 3, 4, 5, 6] : tensor<2x3x
// CHECK: circle.const [1, 3] : tensor<2xi32>
// CHECK: circle.const [1, 3, 4, 6] : tensor<2x2x
// CHECK: circle.const [110, 225] : tensor<2xi32>

// -----

// The same code before padding stays: at the edges the layer reads 0 in its place.
func.func @before_padding(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x01020000"> : tensor<2x1x1x2x!quant.uniform<i8:f32, 0.5>>
  %b = circle.const [1, 10] : tensor<2xi32>
  %0 = circle.conv_2d(%x, %w, %b) {padding = valid, stride = [1, 1]} : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>, tensor<2x1x1x2x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  %v = circle.const #circle.blob<"0x0101010101010101"> : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>>
  %c = circle.const [1] : tensor<1xi32>
  %1 = circle.conv_2d(%0, %v, %c) {padding = same, stride = [1, 1]} : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>>, tensor<1xi32>) -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @before_padding(
// CHECK: circle.conv_2d({{.*}} -> tensor<1x4x4x2x

// -----

// Channel 0 is read by no weight but 0: it goes. Flattened, the channels of each pixel go. What is returned beside, or goes elsewhere, stays.
func.func @unread(%x: tensor<1x1x2x1x!quant.uniform<i8:f32, 0.5>>) -> (tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x2x2x!quant.uniform<i8:f32, 0.5>>) {
  %w = circle.const #circle.blob<"0x0102"> : tensor<2x1x1x1x!quant.uniform<i8:f32, 0.5>>
  %n = circle.none
  %a = circle.conv_2d(%x, %w, %n) {padding = valid, stride = [1, 1]} : (tensor<1x1x2x1x!quant.uniform<i8:f32, 0.5>>, tensor<2x1x1x1x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x1x2x2x!quant.uniform<i8:f32, 0.5>>
  %b = circle.conv_2d(%x, %w, %n) {padding = valid, stride = [1, 1]} : (tensor<1x1x2x1x!quant.uniform<i8:f32, 0.5>>, tensor<2x1x1x1x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x1x2x2x!quant.uniform<i8:f32, 0.5>>
  %s = circle.const [1, 4] : tensor<2xi32>
  %1 = circle.reshape(%a, %s) {new_shape = [1, 4]} : (tensor<1x1x2x2x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>>
  %v = circle.const #circle.blob<"0x00010002"> : tensor<1x4x!quant.uniform<i8:f32, 0.5>>
  %2 = circle.fully_connected(%1, %v, %n) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x1x!quant.uniform<i8:f32, 0.5>>
  func.return %2, %b : tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x2x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @unread(
// CHECK: circle.const [2] : tensor<1x1x1x1x
// CHECK: circle.conv_2d({{.*}} -> tensor<1x1x2x1x
// CHECK: circle.conv_2d({{.*}} -> tensor<1x1x2x2x
// CHECK: %[[S:.*]] = circle.const [1, 2] : tensor<2xi32>
// CHECK: circle.reshape(%{{.*}}, %[[S]]) {new_shape = [1, 2]}
// CHECK: circle.const [1, 2] : tensor<1x2x
// CHECK: circle.fully_connected({{.*}} -> tensor<1x1x
