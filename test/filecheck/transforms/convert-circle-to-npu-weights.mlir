// RUN: odc-opt %s --split-input-file -p "odc-set-target,npu-mark-supported,npu-form-groups,npu-choose-segments{strategy=supported},npu-form-segments,npu-outline-segments,convert-circle-to-npu" | filecheck %s

// Three zero points too far apart for one: every weight is the sum of two codes, and the input's channels stand twice.
func.func @weights_of_nine_bits(%x: tensor<1x1x2x2x!quant.uniform<u8:f32, 0.5:7>>) -> tensor<1x1x2x3x!quant.uniform<u8:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x00ff00ff00ff"> : tensor<3x1x1x2x!quant.uniform<u8:f32:0, {0.5:0, 0.5:100, 0.5:254}>>
  %b = circle.none
  %y = circle.conv_2d(%x, %w, %b) {padding = valid, stride = [1, 1]} : (tensor<1x1x2x2x!quant.uniform<u8:f32, 0.5:7>>, tensor<3x1x1x2x!quant.uniform<u8:f32:0, {0.5:0, 0.5:100, 0.5:254}>>, none) -> tensor<1x1x2x3x!quant.uniform<u8:f32, 0.5>>
  func.return %y : tensor<1x1x2x3x!quant.uniform<u8:f32, 0.5>>
}
// CHECK-LABEL: func.func @weights_of_nine_bits(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.move %{{.*}} copies [array<i32: 0, 0, 0, 2, 2, 4, 2, 1, 1>, array<i32: 0, 0, 2, 2, 2, 4, 2, 1, 1>]
// CHECK-NEXT: npu.conv %[[V0]] kernel [1, 1] weights <"0x00fffefe00ff9a9a00ff0000"> u8 zeros(7, 127, 0)

// -----

// Depthwise, rows stand twice; -255 and 255 take a third code.
func.func @depthwise_weights_of_nine_bits(%x: tensor<1x3x2x3x!quant.uniform<u8:f32, 0.5:7>>) -> tensor<1x3x2x3x!quant.uniform<u8:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x00ff00ff00ffff0000"> : tensor<1x3x1x3x!quant.uniform<u8:f32:3, {0.5:0, 0.5:100, 0.5:255}>>
  %b = circle.none
  %y = circle.depthwise_conv_2d(%x, %w, %b) {padding = same, stride = [1, 1], depth_multiplier = 1} : (tensor<1x3x2x3x!quant.uniform<u8:f32, 0.5:7>>, tensor<1x3x1x3x!quant.uniform<u8:f32:3, {0.5:0, 0.5:100, 0.5:255}>>, none) -> tensor<1x3x2x3x!quant.uniform<u8:f32, 0.5>>
  func.return %y : tensor<1x3x2x3x!quant.uniform<u8:f32, 0.5>>
}
// CHECK-LABEL: func.func @depthwise_weights_of_nine_bits(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.move %{{.*}} copies [array<i32: 0, 0, 0, 3, 6, 18, 6, 1, 1>, array<i32: 0, 0, 6, 3, 6, 18, 6, 1, 1>, array<i32: 0, 0, 12, 3, 6, 18, 6, 1, 1>]
// CHECK-NEXT: npu.conv depthwise %[[V0]] kernel [9, 1] stride [3, 1] pads [3, 0, 3, 0] weights <"0x00ff00ff9c01818080ff00ffff9c01818080ff0000ff9c01818080"> u8 zeros(7, 128, 0)

// -----

// Every weight is the sum of two codes: the channels of the line are repeated.
func.func @fully_connected_weights_of_nine_bits(%x: tensor<1x2x!quant.uniform<u8:f32, 0.5:7>>) -> tensor<1x3x!quant.uniform<u8:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x00ff00ff00ff"> : tensor<3x2x!quant.uniform<u8:f32:0, {0.5:0, 0.5:100, 0.5:254}>>
  %y = circle.fully_connected(%x, %w) : (tensor<1x2x!quant.uniform<u8:f32, 0.5:7>>, tensor<3x2x!quant.uniform<u8:f32:0, {0.5:0, 0.5:100, 0.5:254}>>) -> tensor<1x3x!quant.uniform<u8:f32, 0.5>>
  func.return %y : tensor<1x3x!quant.uniform<u8:f32, 0.5>>
}
// CHECK-LABEL: func.func @fully_connected_weights_of_nine_bits(
// CHECK: npu.program @segment_0
// CHECK: npu.move {{.*}} copies [array<i32: 0, 0, 0, 1, 2, 4, 2, 1, 1>, array<i32: 0, 0, 2, 1, 2, 4, 2, 1, 1>]
// CHECK-NEXT: npu.conv {{.*}} kernel [1, 1] weights <"0x00fffefe00ff9a9a00ff0000"> u8 zeros(7, 127, 0)

// -----

// Two zero points too far apart: a convolution per zero point, and a move that restores the order of channels.
func.func @channel_groups(%x: tensor<1x1x2x2x!quant.uniform<u8:f32, 0.5:7>>) -> tensor<1x1x2x3x!quant.uniform<u8:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x00ff00ff00ff"> : tensor<3x1x1x2x!quant.uniform<u8:f32:0, {0.5:0, 0.5:254, 0.5:0}>>
  %b = circle.none
  %y = circle.conv_2d(%x, %w, %b) {padding = valid, stride = [1, 1]} : (tensor<1x1x2x2x!quant.uniform<u8:f32, 0.5:7>>, tensor<3x1x1x2x!quant.uniform<u8:f32:0, {0.5:0, 0.5:254, 0.5:0}>>, none) -> tensor<1x1x2x3x!quant.uniform<u8:f32, 0.5>>
  func.return %y : tensor<1x1x2x3x!quant.uniform<u8:f32, 0.5>>
}
// CHECK-LABEL: func.func @channel_groups(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.conv {{.*}} weights <"0x00ff"> u8 zeros(7, 254, 0)
// CHECK-NEXT: %[[V1:.*]] = npu.conv {{.*}} weights <"0x00ff00ff"> u8 zeros(7, 0, 0)
// CHECK-NEXT: npu.move %[[V0]], %[[V1]] copies [array<i32: 0, 0, 1, 2, 1, 3, 1, 1, 1>, array<i32: 1, 0, 0, 2, 2, 3, 1, 1, 1>, array<i32: 1, 1, 2, 2, 2, 3, 1, 1, 1>]

// -----

// Transposed, with sums of two codes.
func.func @transposed_weights_of_nine_bits(%x: tensor<1x1x1x1x!quant.uniform<u8:f32, 0.5:3>>) -> tensor<1x1x2x3x!quant.uniform<u8:f32, 0.5>> {
  %o = circle.const [1, 1, 2, 3] : tensor<4xi32>
  %w = circle.const #circle.blob<"0x00ff00ff00ff"> : tensor<3x1x2x1x!quant.uniform<u8:f32:0, {0.5:0, 0.5:100, 0.5:254}>>
  %n = circle.none
  %0 = circle.transpose_conv(%o, %w, %x, %n) {padding = valid, stride_h = 1, stride_w = 1} : (tensor<4xi32>, tensor<3x1x2x1x!quant.uniform<u8:f32:0, {0.5:0, 0.5:100, 0.5:254}>>, tensor<1x1x1x1x!quant.uniform<u8:f32, 0.5:3>>, none) -> tensor<1x1x2x3x!quant.uniform<u8:f32, 0.5>>
  func.return %0 : tensor<1x1x2x3x!quant.uniform<u8:f32, 0.5>>
}
// CHECK-LABEL: func.func @transposed_weights_of_nine_bits(
// CHECK: npu.program @segment_0
// CHECK: npu.move {{.*}} copies [array<i32: 0, 0, 0, 1, 1, 2, 1, 1, 1>, array<i32: 0, 0, 1, 1, 1, 2, 1, 1, 1>]
// CHECK-NEXT: npu.conv {{.*}} kernel [1, 2] pads [0, 1, 0, 1] weights <"0xfffe00feff9a009aff000000"> u8 zeros(3, 127, 0)

// -----

// Transposed, with a convolution per zero point.
func.func @transposed_channel_groups(%x: tensor<1x1x1x1x!quant.uniform<u8:f32, 0.5:3>>) -> tensor<1x1x2x2x!quant.uniform<u8:f32, 0.5>> {
  %o = circle.const [1, 1, 2, 2] : tensor<4xi32>
  %w = circle.const #circle.blob<"0x00ff00ff"> : tensor<2x1x2x1x!quant.uniform<u8:f32:0, {0.5:0, 0.5:254}>>
  %n = circle.none
  %0 = circle.transpose_conv(%o, %w, %x, %n) {padding = valid, stride_h = 1, stride_w = 1} : (tensor<4xi32>, tensor<2x1x2x1x!quant.uniform<u8:f32:0, {0.5:0, 0.5:254}>>, tensor<1x1x1x1x!quant.uniform<u8:f32, 0.5:3>>, none) -> tensor<1x1x2x2x!quant.uniform<u8:f32, 0.5>>
  func.return %0 : tensor<1x1x2x2x!quant.uniform<u8:f32, 0.5>>
}
// CHECK-LABEL: func.func @transposed_channel_groups(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.conv {{.*}} weights <"0xff00"> u8 zeros(3, 254, 0)
// CHECK-NEXT: %[[V1:.*]] = npu.conv {{.*}} weights <"0xff00"> u8 zeros(3, 0, 0)
// CHECK-NEXT: npu.move %[[V0]], %[[V1]] copies [array<i32: 0, 0, 1, {{.*}}>, array<i32: 1, 0, 0, {{.*}}>]
