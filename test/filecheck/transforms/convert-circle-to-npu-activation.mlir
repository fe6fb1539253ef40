// RUN: odc-opt %s --split-input-file -p "odc-set-target,npu-mark-supported,npu-form-groups,npu-choose-segments{strategy=supported},npu-form-segments,npu-outline-segments,convert-circle-to-npu" | filecheck %s

// QUANTIZE between integer types: a change of scale.
func.func @quantize(%x: tensor<1x4x!quant.uniform<u8:f32, 0.5:100>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.25:-28>> {
  %y = circle.quantize(%x) : (tensor<1x4x!quant.uniform<u8:f32, 0.5:100>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.25:-28>>
  func.return %y : tensor<1x4x!quant.uniform<i8:f32, 0.25:-28>>
}
// CHECK-LABEL: func.func @quantize(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.scale %{{.*}} in_zero 100 out_zero -28 scale <1073741824, 2> clamp(-128, 127)

// -----

// RELU is a change of scale that clamps at the zero point.
func.func @relu(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  %y = circle.relu(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  func.return %y : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
// CHECK-LABEL: func.func @relu(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.scale %{{.*}} in_zero 10 out_zero 10 scale <1073741824, 1> clamp(10, 127)

// -----

// RELU6 clamps at 6 / 0.5 codes above it.
func.func @relu6(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  %y = circle.relu6(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  func.return %y : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
// CHECK-LABEL: func.func @relu6(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.scale %{{.*}} in_zero 10 out_zero 10 scale <1073741824, 1> clamp(10, 22)

// -----

// RELU_N1_TO_1 clamps at 2 codes on both sides.
func.func @relu_n1_to_1(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  %y = circle.relu_n1_to_1(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  func.return %y : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
// CHECK-LABEL: func.func @relu_n1_to_1(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.scale %{{.*}} in_zero 10 out_zero 10 scale <1073741824, 1> clamp(8, 12)

// -----

// LOGISTIC is a table of all codes, from its host kernel.
func.func @logistic(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.00390625:-128>> {
  %y = circle.logistic(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.00390625:-128>>
  func.return %y : tensor<1x4x!quant.uniform<i8:f32, 0.00390625:-128>>
}
// CHECK-LABEL: func.func @logistic(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.lut %{{.*}} table <sha256_2540fdacc7a1bd0f4cbeec73cf3f181f14dada52e12e3b647404e72a3b209bb2, 256>

// -----

// TANH too.
func.func @tanh(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.0078125>> {
  %y = circle.tanh(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.0078125>>
  func.return %y : tensor<1x4x!quant.uniform<i8:f32, 0.0078125>>
}
// CHECK-LABEL: func.func @tanh(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.lut %{{.*}} table <sha256_318789acffe8ebfb0792f6f4a816339d7b0614f9880b0f6e40601418230f2223, 256>

// -----

// LEAKY_RELU with slope 0.5: code 8 is 2 below the zero point 10 and becomes 9.
func.func @leaky_relu(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>> {
  %y = circle.leaky_relu(%x) {alpha = 0.5} : (tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
  func.return %y : tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>
}
// CHECK-LABEL: func.func @leaky_relu(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.lut %{{.*}} table <sha256_3ed4c076410ebdf843399c42838b360ab965c037cf1a30ba714beabcabbc736f, 256>

// -----

// A slope per channel: positive codes plus slopes times negative ones, which are cut out before if slopes are negative.
func.func @prelu_of_negative_slopes(%x: tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:-2>> {
  %s = circle.const [1, -2] : tensor<1x1x2x!quant.uniform<i8:f32, 0.25>>
  %0 = circle.prelu(%x, %s) : (tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x1x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:-2>>
  func.return %0 : tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:-2>>
}
// CHECK-LABEL: func.func @prelu_of_negative_slopes(
// CHECK: npu.program @segment_0
// CHECK: %[[LOW:.*]] = npu.scale %{{.*}} in_zero 3 out_zero 3 scale <1073741824, 1> clamp(-128, 3)
// CHECK: %[[HIGH:.*]] = npu.scale %{{.*}} in_zero 3 out_zero -2 scale <1073741824, 1> clamp(-2, 127)
// CHECK-NEXT: %[[BELOW:.*]] = npu.elementwise mul %[[LOW]], %{{.*}} a_zero 3 out_zero -2 out_scale <1073741824, -1>
// CHECK-NEXT: npu.elementwise add %[[HIGH]], %[[BELOW]] a_zero -2 b_zero -2 out_zero -2

// -----

// Products of positive codes and positive slopes are cut off behind.
func.func @prelu(%x: tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:-2>> {
  %s = circle.const [1, 2] : tensor<1x1x2x!quant.uniform<i8:f32, 0.25>>
  %0 = circle.prelu(%x, %s) : (tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x1x2x!quant.uniform<i8:f32, 0.25>>) -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:-2>>
  func.return %0 : tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:-2>>
}
// CHECK-LABEL: func.func @prelu(
// CHECK: npu.program @segment_0
// CHECK: %[[HIGH:.*]] = npu.scale %{{.*}} in_zero 3 out_zero -2 scale <1073741824, 1> clamp(-2, 127)
// CHECK-NEXT: %[[BELOW:.*]] = npu.elementwise mul %{{.*}}, %{{.*}} a_zero 3 out_zero -2 out_scale <1073741824, -1> clamp(-128, -2)
// CHECK-NEXT: npu.elementwise add %[[HIGH]], %[[BELOW]] a_zero -2 b_zero -2 out_zero -2

// -----

// Real operators between 8-bit codes are one table.
func.func @island(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<u8:f32, 0.25>> {
  %c = circle.const [2.0] : tensor<f32>
  %d = circle.dequantize(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4xf32>
  %r = circle.relu(%d) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %s = circle.add(%d, %c) : (tensor<1x4xf32>, tensor<f32>) -> tensor<1x4xf32>
  %m = circle.mul(%r, %s) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  %q = circle.quantize(%m) : (tensor<1x4xf32>) -> tensor<1x4x!quant.uniform<u8:f32, 0.25>>
  func.return %q : tensor<1x4x!quant.uniform<u8:f32, 0.25>>
}
// CHECK-LABEL: func.func @island(
// CHECK: npu.program @segment_0
// CHECK-NEXT: npu.lut %{{.*}} table <sha256_{{.*}}, 256>
// CHECK-NEXT: odc.yield
