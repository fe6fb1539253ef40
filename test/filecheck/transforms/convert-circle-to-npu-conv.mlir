// RUN: odc-opt %s --split-input-file -p "odc-set-target,npu-mark-supported,npu-form-groups,npu-choose-segments{strategy=supported},npu-form-segments,npu-outline-segments,convert-circle-to-npu" | filecheck %s

// A convolution: SAME padding becomes numbers, scales multipliers, the fused RELU a clamp; weights keep their order.
func.func @conv_2d(%x: tensor<2x4x4x2x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<2x2x2x3x!quant.uniform<i8:f32, 0.25:5>> {
  %w = circle.const #circle.blob<"0x0102030405060708090a0b0c0d0e0f101112131415161718"> : tensor<3x2x2x2x!quant.uniform<i8:f32:0, {0.5, 0.25, 0.125}>>
  %b = circle.const [10, -20, 30] : tensor<3xi32>
  %y = circle.conv_2d(%x, %w, %b) {padding = same, stride = [2, 2], activation = relu} : (tensor<2x4x4x2x!quant.uniform<i8:f32, 0.5:-3>>, tensor<3x2x2x2x!quant.uniform<i8:f32:0, {0.5, 0.25, 0.125}>>, tensor<3xi32>) -> tensor<2x2x2x3x!quant.uniform<i8:f32, 0.25:5>>
  func.return %y : tensor<2x2x2x3x!quant.uniform<i8:f32, 0.25:5>>
}
// CHECK-LABEL: func.func @conv_2d(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.conv %{{.*}} kernel [2, 2] stride [2, 2] weights <"0x0102030405060708090a0b0c0d0e0f101112131415161718"> i8 zeros(-3, 0, 5) clamp(5, 127) bias <10, -20, 30> multiplier <1073741824, 1073741824, 1073741824> exponent <1, 0, -1>

// -----

// Per-tensor uint8 weights have a zero point and one multiplier, repeated; padding 1 before, 2 after.
func.func @conv_2d_uint8(%x: tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5:128>>) -> tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5:100>> {
  %w = circle.const #circle.blob<"0x0001020304050607"> : tensor<2x1x2x2x!quant.uniform<u8:f32, 0.5:7>>
  %n = circle.none
  %y = circle.conv_2d(%x, %w, %n) {padding = same, stride = [1, 1], dilation = [1, 3], activation = relu6} : (tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5:128>>, tensor<2x1x2x2x!quant.uniform<u8:f32, 0.5:7>>, none) -> tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5:100>>
  func.return %y : tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5:100>>
}
// CHECK-LABEL: func.func @conv_2d_uint8(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.conv %{{.*}} kernel [1, 2] dilation [1, 3] pads [0, 1, 0, 2] weights <"0x0001020304050607"> u8 zeros(128, 7, 100) clamp(100, 112) bias <0, 0> multiplier <1073741824, 1073741824> exponent <0, 0>

// -----

// One input channel per group: a depthwise convolution, weights transposed from [O, kh, kw, 1] to [kh, kw, O].
func.func @conv_2d_grouped(%x: tensor<1x1x2x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x0102030405060708"> : tensor<4x1x2x1x!quant.uniform<i8:f32, 0.5>>
  %n = circle.none
  %y = circle.conv_2d(%x, %w, %n) {padding = valid, stride = [1, 1]} : (tensor<1x1x2x2x!quant.uniform<i8:f32, 0.5>>, tensor<4x1x2x1x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>>
  func.return %y : tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @conv_2d_grouped(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.conv depthwise %{{.*}} kernel [1, 2] weights <"0x0103050702040608"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <0, 0, 0, 0> multiplier <1073741824, 1073741824, 1073741824, 1073741824> exponent <0, 0, 0, 0>

// -----

// A depthwise convolution with two results per channel keeps its weights as they are.
func.func @depthwise(%x: tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x0102030405060708090a0b0c0d0e0f10"> : tensor<1x2x2x4x!quant.uniform<i8:f32:3, {0.5, 0.25, 0.125, 0.0625}>>
  %n = circle.none
  %y = circle.depthwise_conv_2d(%x, %w, %n) {padding = valid, stride = [1, 1], depth_multiplier = 2} : (tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x2x4x!quant.uniform<i8:f32:3, {0.5, 0.25, 0.125, 0.0625}>>, none) -> tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5>>
  func.return %y : tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @depthwise(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.conv depthwise %{{.*}} kernel [2, 2] weights <"0x0102030405060708090a0b0c0d0e0f10"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <0, 0, 0, 0> multiplier <1073741824, 1073741824, 1073741824, 1073741824> exponent <0, -1, -2, -3>

// -----

// On a single input channel it is an ordinary convolution with weights [O, kh, kw, 1].
func.func @depthwise_of_one_channel(%x: tensor<1x1x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x0102030405060708"> : tensor<1x1x2x4x!quant.uniform<i8:f32, 0.5>>
  %n = circle.none
  %y = circle.depthwise_conv_2d(%x, %w, %n) {padding = valid, stride = [1, 1], depth_multiplier = 4} : (tensor<1x1x2x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x2x4x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>>
  func.return %y : tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @depthwise_of_one_channel(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.conv %{{.*}} kernel [1, 2] weights <"0x0105020603070408"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <0, 0, 0, 0> multiplier <1073741824, 1073741824, 1073741824, 1073741824> exponent <0, 0, 0, 0>

// -----

// Rows of a matrix product are the pixels of one line.
func.func @fully_connected(%x: tensor<3x4x!quant.uniform<i8:f32, 0.5:1>>) -> tensor<3x2x!quant.uniform<i8:f32, 0.5:2>> {
  %w = circle.const #circle.blob<"0x0102030405060708"> : tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>
  %b = circle.const [7, 8] : tensor<2xi32>
  %y = circle.fully_connected(%x, %w, %b) : (tensor<3x4x!quant.uniform<i8:f32, 0.5:1>>, tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<2xi32>) -> tensor<3x2x!quant.uniform<i8:f32, 0.5:2>>
  func.return %y : tensor<3x2x!quant.uniform<i8:f32, 0.5:2>>
}
// CHECK-LABEL: func.func @fully_connected(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.conv %[[V0]] kernel [1, 1] weights <"0x0102030405060708"> i8 zeros(1, 3, 2) clamp(-128, 127) bias <7, 8> multiplier <1073741824, 1073741824> exponent <0, 0>
// CHECK-NEXT: %[[V2:.*]] = npu.reshape %[[V1]]

// -----

// Unsigned weights have a zero point also where each row has a scale of its own.
func.func @fully_connected_rows(%x: tensor<1x4x!quant.uniform<u8:f32, 0.5:1>>) -> tensor<1x2x!quant.uniform<u8:f32, 0.5:2>> {
  %w = circle.const #circle.blob<"0x0102030405060708"> : tensor<2x4x!quant.uniform<u8:f32:0, {0.5:128, 0.25:128}>>
  %y = circle.fully_connected(%x, %w) : (tensor<1x4x!quant.uniform<u8:f32, 0.5:1>>, tensor<2x4x!quant.uniform<u8:f32:0, {0.5:128, 0.25:128}>>) -> tensor<1x2x!quant.uniform<u8:f32, 0.5:2>>
  func.return %y : tensor<1x2x!quant.uniform<u8:f32, 0.5:2>>
}
// CHECK-LABEL: func.func @fully_connected_rows(
// CHECK: npu.conv {{.*}} u8 zeros(1, 128, 2)
