// RUN: odc-opt %s --split-input-file -p odc-set-target,circle-infer-shapes,odc-fix-batch,npu-mark-supported,npu-form-segments,npu-outline-segments,convert-circle-to-npu | filecheck %s

// Codes of 16 bits.

// Sums of 64 bits, as the bias says: scaled whole. Weights keep their 8 bits.
func.func @conv_2d(%x: tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x2x2x2x!quant.uniform<i16:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x0102"> : tensor<2x1x1x1x!quant.uniform<i8:f32, 0.5>>
  %b = circle.const [10, -20] : tensor<2xi64>
  %y = circle.conv_2d(%x, %w, %b) {padding = same, stride = [1, 1], activation = relu} : (tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>>, tensor<2x1x1x1x!quant.uniform<i8:f32, 0.5>>, tensor<2xi64>) -> tensor<1x2x2x2x!quant.uniform<i16:f32, 0.5>>
  func.return %y : tensor<1x2x2x2x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @conv_2d(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.conv wide %{{.*}} kernel [1, 1] weights <"0x0102"> i8 zeros(0, 0, 0) clamp(0, 32767) bias <10, -20> multiplier <1073741824, 1073741824> exponent <0, 0>

// -----

// With a bias of 32 bits sums have as many.
func.func @conv_2d_narrow(%x: tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x2x2x2x!quant.uniform<i16:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x0102"> : tensor<2x1x1x1x!quant.uniform<i8:f32, 0.5>>
  %b = circle.const [10, -20] : tensor<2xi32>
  %y = circle.conv_2d(%x, %w, %b) {padding = same, stride = [1, 1]} : (tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>>, tensor<2x1x1x1x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<1x2x2x2x!quant.uniform<i16:f32, 0.5>>
  func.return %y : tensor<1x2x2x2x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @conv_2d_narrow(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.conv %{{.*}} kernel [1, 1] weights <"0x0102"> i8 zeros(0, 0, 0) clamp(-32768, 32767) bias <10, -20> multiplier <1073741824, 1073741824> exponent <0, 0>

// -----

// Weights of 16 bits.
func.func @fully_connected(%x: tensor<1x2x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x1x!quant.uniform<i16:f32, 0.5>> {
  %w = circle.const #circle.blob<"0x01000200"> : tensor<1x2x!quant.uniform<i16:f32, 0.5>>
  %n = circle.none
  %y = circle.fully_connected(%x, %w, %n) : (tensor<1x2x!quant.uniform<i16:f32, 0.5>>, tensor<1x2x!quant.uniform<i16:f32, 0.5>>, none) -> tensor<1x1x!quant.uniform<i16:f32, 0.5>>
  func.return %y : tensor<1x1x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @fully_connected(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.conv wide %[[V0]] kernel [1, 1] weights <"0x01000200"> i16 zeros(0, 0, 0) clamp(-32768, 32767) bias <0> multiplier <1073741824> exponent <0>
// CHECK-NEXT: %[[V2:.*]] = npu.reshape %[[V1]]

// -----

// Scales that are no powers of two: codes are shifted by 15, scaled, added and scaled.
func.func @add(%a: tensor<1x4x!quant.uniform<i16:f32, 0.75>>, %b: tensor<1x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i16:f32, 0.5>> {
  %y = circle.add(%a, %b) : (tensor<1x4x!quant.uniform<i16:f32, 0.75>>, tensor<1x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i16:f32, 0.5>>
  func.return %y : tensor<1x4x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @add(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise add %{{.*}}, %{{.*}} shift 15 a_scale <1073741824, 0> b_scale <1431655765, -1> out_scale <1610612736, -13> clamp(-32768, 32767)

// -----

// Powers of two: one operand is halved, both shifts are exact but for its last bit.
func.func @add_powers(%a: tensor<1x4x!quant.uniform<i16:f32, 1.0>>, %b: tensor<1x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i16:f32, 1.0>> {
  %y = circle.add(%a, %b) : (tensor<1x4x!quant.uniform<i16:f32, 1.0>>, tensor<1x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i16:f32, 1.0>>
  func.return %y : tensor<1x4x!quant.uniform<i16:f32, 1.0>>
}
// CHECK-LABEL: func.func @add_powers(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise add %{{.*}}, %{{.*}} shift 15 a_scale <1073741824, -14> b_scale <1073741824, -15> out_scale <1073741824, 1> clamp(-32768, 32767)

// -----

// One constant for each channel: a depthwise convolution with weights of 16 bits.
func.func @mul_by_channels(%a: tensor<1x3x2x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x3x2x!quant.uniform<i16:f32, 0.5>> {
  %c = circle.const #circle.blob<"0x01000200"> : tensor<2x!quant.uniform<i16:f32, 0.5>>
  %y = circle.mul(%a, %c) : (tensor<1x3x2x!quant.uniform<i16:f32, 0.5>>, tensor<2x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x3x2x!quant.uniform<i16:f32, 0.5>>
  func.return %y : tensor<1x3x2x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @mul_by_channels(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.conv depthwise %[[V0]] kernel [1, 1] weights <"0x01000200"> i16 zeros(0, 0, 0) clamp(-32768, 32767) bias <0, 0> multiplier <1073741824, 1073741824> exponent <0, 0>
// CHECK-NEXT: %[[V2:.*]] = npu.reshape %[[V1]]

// -----

// The instruction has the functions of one table.
func.func @logistic(%x: tensor<1x4x!quant.uniform<i16:f32, 2.44140625e-04>>) -> tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>> {
  %y = circle.logistic(%x) : (tensor<1x4x!quant.uniform<i16:f32, 2.44140625e-04>>) -> tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>>
  func.return %y : tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>>
}
// CHECK-LABEL: func.func @logistic(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.sigmoid logistic %{{.*}} multiplier 3 shift 0 table <sha256_c79a34d2c8c6e794fbb0207601538fe0169e968cd6d9d5ca65fff859dcd55183, 512>

// -----

// Other real functions have 513 entries.
func.func @exp(%x: tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>>) -> tensor<1x4x!quant.uniform<i16:f32, 1.220703125e-04>> {
  %y = circle.exp(%x) : (tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>>) -> tensor<1x4x!quant.uniform<i16:f32, 1.220703125e-04>>
  func.return %y : tensor<1x4x!quant.uniform<i16:f32, 1.220703125e-04>>
}
// CHECK-LABEL: func.func @exp(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.lut %{{.*}} table <{{.*}}, 1026>

// -----

// Two changes of scale, of which one always gives 0.
func.func @leaky_relu(%x: tensor<1x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i16:f32, 0.5>> {
  %y = circle.leaky_relu(%x) {alpha = 0.5} : (tensor<1x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i16:f32, 0.5>>
  func.return %y : tensor<1x4x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @leaky_relu(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.scale %{{.*}} scale <1073741824, 1> clamp(0, 32767)
// CHECK-NEXT: %[[V1:.*]] = npu.scale %{{.*}} scale <1073741824, 0> clamp(-32768, 0)
// CHECK-NEXT: %[[V2:.*]] = npu.elementwise add %[[V0]], %[[V1]] shift 15 a_scale <1073741824, -14> b_scale <1073741824, -14> out_scale <1073741824, 1> clamp(-32768, 32767)

// -----

// The larger of the codes and their negatives.
func.func @abs(%x: tensor<1x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i16:f32, 0.5>> {
  %y = circle.abs(%x) : (tensor<1x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i16:f32, 0.5>>
  func.return %y : tensor<1x4x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @abs(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.scale %{{.*}} scale <1073741824, 1> clamp(-32768, 32767)
// CHECK-NEXT: %[[V2:.*]] = npu.scale %{{.*}} scale <-1073741824, 1> clamp(-32768, 32767)
// CHECK-NEXT: %[[V3:.*]] = npu.elementwise max %[[V0]], %[[V2]] clamp(-32768, 32767)

// -----

// Exponentials are looked up.
func.func @softmax(%x: tensor<1x4x!quant.uniform<i16:f32, 0.0009765625>>) -> tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>> {
  %y = circle.softmax(%x) {beta = 1.0} : (tensor<1x4x!quant.uniform<i16:f32, 0.0009765625>>) -> tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>>
  func.return %y : tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>>
}
// CHECK-LABEL: func.func @softmax(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.softmax %{{.*}} scale <1717960704, 3> table <{{.*}}, 1026>

// -----

// A mean along rows has sums of 32 bits.
func.func @mean_of_rows(%x: tensor<2x4x!quant.uniform<i16:f32, 0.5>>) -> tensor<2x1x!quant.uniform<i16:f32, 0.5>> {
  %i = circle.const [-1] : tensor<1xi32>
  %y = circle.mean(%x, %i) {keep_dims = true} : (tensor<2x4x!quant.uniform<i16:f32, 0.5>>, tensor<1xi32>) -> tensor<2x1x!quant.uniform<i16:f32, 0.5>>
  func.return %y : tensor<2x1x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @mean_of_rows(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.conv %[[V0]] kernel [1, 1] weights <"0x01010101"> i8 zeros(0, 0, 0) clamp(-32768, 32767) bias <0> multiplier <1073741824> exponent <-1>
// CHECK-NEXT: %[[V2:.*]] = npu.reshape %[[V1]]

// -----

// One over the square root: codes near zero are looked up as larger ones, for what the first table leaves to be told.
func.func @rsqrt(%x: tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>>) -> tensor<1x4x!quant.uniform<i16:f32, 9.1552734375e-05>> {
  %y = circle.rsqrt(%x) : (tensor<1x4x!quant.uniform<i16:f32, 3.0517578125e-05>>) -> tensor<1x4x!quant.uniform<i16:f32, 9.1552734375e-05>>
  func.return %y : tensor<1x4x!quant.uniform<i16:f32, 9.1552734375e-05>>
}
// CHECK-LABEL: func.func @rsqrt(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.lut %[[X:.*]] table <{{.*}}, 1026>
// CHECK-NEXT: %[[V1:.*]] = npu.scale %[[X]] scale <1073741824, 3> clamp(-32768, 32767)
// CHECK-NEXT: %[[V2:.*]] = npu.lut %[[V1]] table <{{.*}}, 1026>
// CHECK-NEXT: %[[V3:.*]] = npu.elementwise add %[[V0]], %[[V2]] shift 15 a_scale <1073741824, -14> b_scale <1073741824, -14> out_scale <1073741824, 1> clamp(-32768, 32767)
// CHECK-NEXT: %[[V4:.*]] = npu.scale shifted %[[V3]] out_zero {{[0-9]+}} scale <1073741824, 1> clamp(-32768, 32767)

// -----

// A function that is cut off at the largest code: one table of what it would be beyond, less a constant.
func.func @gelu(%x: tensor<1x4x!quant.uniform<i16:f32, 0.001>>) -> tensor<1x4x!quant.uniform<i16:f32, 7.6E-4>> {
  %y = circle.gelu(%x) : (tensor<1x4x!quant.uniform<i16:f32, 0.001>>) -> tensor<1x4x!quant.uniform<i16:f32, 7.6E-4>>
  func.return %y : tensor<1x4x!quant.uniform<i16:f32, 7.6E-4>>
}
// CHECK-LABEL: func.func @gelu(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.lut %{{.*}} table <{{.*}}, 1026>
// CHECK-NEXT: npu.scale shifted %[[V0]] out_zero {{[0-9]+}} scale <1073741824, 1> clamp(-32768, 32767)

// -----

// The multiplier is negative.
func.func @neg(%x: tensor<1x2x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i16:f32, 0.5>> {
  %0 = circle.neg(%x) : (tensor<1x2x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i16:f32, 0.5>>
  func.return %0 : tensor<1x2x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @neg(
// CHECK: npu.program @segment_0
// CHECK: npu.scale %{{.*}} scale <-1073741824, 1> clamp(-32768, 32767)
