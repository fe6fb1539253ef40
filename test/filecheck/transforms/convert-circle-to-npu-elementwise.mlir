// RUN: odc-opt %s --split-input-file -p "odc-set-target,npu-mark-supported,npu-form-groups,npu-choose-segments{strategy=supported},npu-form-segments,npu-outline-segments,convert-circle-to-npu" | filecheck %s

// Both operands are brought to twice the larger scale; the result has its own.
func.func @add(%a: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>, %b: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.25:4>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>> {
  %y = circle.add(%a, %b) {activation = relu} : (tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>, tensor<1x2x2x2x!quant.uniform<i8:f32, 0.25:4>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
  func.return %y : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
}
// CHECK-LABEL: func.func @add(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise add %{{.*}}, %{{.*}} a_zero -3 b_zero 4 out_zero 1 shift 20 a_scale <1073741824, 0> b_scale <1073741824, -1> out_scale <1073741824, -18> clamp(1, 127)

// -----

// Operands of different rank: dimensions of size 1 broadcast.
func.func @sub_broadcast(%a: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>, %b: tensor<2x1x!quant.uniform<i8:f32, 0.25>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>> {
  %y = circle.sub(%a, %b) : (tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>, tensor<2x1x!quant.uniform<i8:f32, 0.25>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
  func.return %y : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
}
// CHECK-LABEL: func.func @sub_broadcast(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise sub %{{.*}}, %{{.*}} a_zero -3 out_zero 1 shift 20 a_scale <1073741824, 0> b_scale <1073741824, -1> out_scale <1073741824, -18> clamp(-128, 127)

// -----

// A product needs one multiplier.
func.func @mul(%a: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>, %b: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.25:4>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>> {
  %y = circle.mul(%a, %b) : (tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>, tensor<1x2x2x2x!quant.uniform<i8:f32, 0.25:4>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
  func.return %y : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
}
// CHECK-LABEL: func.func @mul(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise mul %{{.*}}, %{{.*}} a_zero -3 b_zero 4 out_zero 1 out_scale <1073741824, -1> clamp(-128, 127)

// -----

// One factor per channel: a depthwise convolution of one tap gives the same sums.
func.func @mul_by_channels(%a: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>> {
  %c = circle.const #circle.blob<"0x0203"> : tensor<2x!quant.uniform<i8:f32, 0.25:4>>
  %y = circle.mul(%a, %c) : (tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>, tensor<2x!quant.uniform<i8:f32, 0.25:4>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
  func.return %y : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
}
// CHECK-LABEL: func.func @mul_by_channels(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.conv depthwise %[[V0]] kernel [1, 1] weights <"0x0203"> i8 zeros(-3, 4, 1) clamp(-128, 127) bias <0, 0> multiplier <1073741824, 1073741824> exponent <-1, -1>
// CHECK-NEXT: %[[V2:.*]] = npu.reshape %[[V1]]

// -----

// A constant summand per channel stays a tensor.
func.func @add_channels(%a: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>> {
  %c = circle.const #circle.blob<"0x0203"> : tensor<2x!quant.uniform<i8:f32, 0.25:4>>
  %y = circle.add(%c, %a) : (tensor<2x!quant.uniform<i8:f32, 0.25:4>>, tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
  func.return %y : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:1>>
}
// CHECK-LABEL: func.func @add_channels(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.constant <"0x0203">
// CHECK-NEXT: %[[V1:.*]] = npu.elementwise add %[[V0]], %{{.*}} a_zero 4 b_zero -3 out_zero 1 shift 20 a_scale <1073741824, -1> b_scale <1073741824, 0> out_scale <1073741824, -18> clamp(-128, 127)

// -----

// With a constant of one element the result is a function of one code: x + 1 in steps of 0.5 is two codes up.
func.func @add_scalar(%a: tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> {
  %c = circle.const #circle.blob<"0x02"> : tensor<1x!quant.uniform<i8:f32, 0.5>>
  %y = circle.add(%a, %c) : (tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<1x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return %y : tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @add_scalar(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.lut %{{.*}} table <sha256_c95fbf23debbc508449cd5925e6fbd20fb85a3704ccd1bbce2d878ffd16b2e7c, 256>

// -----

// The difference gets 16 bits, and is squared.
func.func @squared_difference(%a: tensor<2x3x!quant.uniform<i8:f32, 0.5:-3>>, %b: tensor<3x!quant.uniform<i8:f32, 0.25:4>>) -> tensor<2x3x!quant.uniform<i8:f32, 0.5:1>> {
  %y = circle.squared_difference(%a, %b) : (tensor<2x3x!quant.uniform<i8:f32, 0.5:-3>>, tensor<3x!quant.uniform<i8:f32, 0.25:4>>) -> tensor<2x3x!quant.uniform<i8:f32, 0.5:1>>
  func.return %y : tensor<2x3x!quant.uniform<i8:f32, 0.5:1>>
}
// CHECK-LABEL: func.func @squared_difference(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise sub %{{.*}}, %{{.*}} a_zero -3 b_zero 4 shift 7 a_scale <1073741824, 0> b_scale <1073741824, -1> out_scale <1073741824, 1> clamp(-32768, 32767)
// CHECK-NEXT: npu.elementwise mul %[[V0]], %[[V0]] out_zero 1 out_scale <1073741824, -12> clamp(-128, 127)

// -----

// 16-bit codes of one scale: the difference may be 32768, its negative is a code.
func.func @squared_difference_int16(%a: tensor<3x!quant.uniform<i16:f32, 0.5>>, %b: tensor<3x!quant.uniform<i16:f32, 0.5>>) -> tensor<3x!quant.uniform<i16:f32, 8.0>> {
  %y = circle.squared_difference(%a, %b) : (tensor<3x!quant.uniform<i16:f32, 0.5>>, tensor<3x!quant.uniform<i16:f32, 0.5>>) -> tensor<3x!quant.uniform<i16:f32, 8.0>>
  func.return %y : tensor<3x!quant.uniform<i16:f32, 8.0>>
}
// CHECK-LABEL: func.func @squared_difference_int16(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise sub %[[A:.*]], %[[B:.*]] a_scale
// CHECK-NEXT: %[[V1:.*]] = npu.elementwise sub %[[B]], %[[A]] a_scale
// CHECK-NEXT: %[[V2:.*]] = npu.elementwise min %[[V0]], %[[V1]] clamp(-32768, 32767)
// CHECK-NEXT: npu.elementwise mul %[[V2]], %[[V2]]

// -----

// Codes of one scale are compared as they are.
func.func @maximum(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, %y: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>> {
  %0 = circle.maximum(%x, %y) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
  func.return %0 : tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @maximum(
// CHECK: npu.program @segment_0
// CHECK: npu.elementwise max %{{.*}}, %{{.*}} clamp(-128, 127)
