// RUN: odc-opt %s --split-input-file -p "odc-set-target,npu-mark-supported,npu-form-groups,npu-choose-segments{strategy=supported},npu-form-segments,npu-outline-segments,convert-circle-to-npu" | filecheck %s

// Codes are compared at a common scale; a difference of 0 becomes 1.
func.func @greater_equal(%x: tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>, %z: tensor<2x!quant.uniform<i8:f32, 0.25:-4>>) -> tensor<2x2xi1> {
  %y = circle.greater_equal(%x, %z) : (tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x!quant.uniform<i8:f32, 0.25:-4>>) -> tensor<2x2xi1>
  func.return %y : tensor<2x2xi1>
}
// CHECK-LABEL: func.func @greater_equal(
// CHECK: npu.program @segment_0
// CHECK: npu.elementwise sub %x, %z a_zero 3 b_zero -4 out_zero 1 shift 8 a_scale <1073741824, 0> b_scale <1073741824, -1> out_scale <1073741824, 1> clamp(0, 1)

// -----

// LESS swaps the operands.
func.func @less(%x: tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>, %z: tensor<2x!quant.uniform<i8:f32, 0.25:-4>>) -> tensor<2x2xi1> {
  %y = circle.less(%x, %z) : (tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x!quant.uniform<i8:f32, 0.25:-4>>) -> tensor<2x2xi1>
  func.return %y : tensor<2x2xi1>
}
// CHECK-LABEL: func.func @less(
// CHECK: npu.program @segment_0
// CHECK: npu.elementwise sub %z, %x a_zero -4 b_zero 3 shift 8 a_scale <1073741824, -1> b_scale <1073741824, 0> out_scale <1073741824, 1> clamp(0, 1)

// -----

// The square of the sign of the difference is 0 only for equal operands.
func.func @equal(%x: tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>, %z: tensor<2x!quant.uniform<i8:f32, 0.25:-4>>) -> tensor<2x2xi1> {
  %y = circle.equal(%x, %z) : (tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x!quant.uniform<i8:f32, 0.25:-4>>) -> tensor<2x2xi1>
  func.return %y : tensor<2x2xi1>
}
// CHECK-LABEL: func.func @equal(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise sub %x, %z {{.*}} clamp(-1, 1)
// CHECK-NEXT: npu.elementwise mul %[[V0]], %[[V0]] out_zero 1 out_scale <-1073741824, 1> clamp(0, 1)

// -----

// Truths are bytes of 0 and 1.
func.func @logic(%x: tensor<2x2xi1>, %z: tensor<2x2xi1>) -> tensor<2x2xi1> {
  %a = circle.logical_and(%x, %z) : (tensor<2x2xi1>, tensor<2x2xi1>) -> tensor<2x2xi1>
  %n = circle.logical_not(%a) : (tensor<2x2xi1>) -> tensor<2x2xi1>
  %y = circle.logical_or(%n, %z) : (tensor<2x2xi1>, tensor<2x2xi1>) -> tensor<2x2xi1>
  func.return %y : tensor<2x2xi1>
}
// CHECK-LABEL: func.func @logic(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise min %x, %z clamp(0, 1)
// CHECK-NEXT: %[[V1:.*]] = npu.elementwise mul %[[V0]], %[[V0]] a_zero 1 b_zero 1 out_scale <1073741824, 1> clamp(0, 1)
// CHECK-NEXT: npu.elementwise max %[[V1]], %z clamp(0, 1)

// -----

// One of the two products is zero.
func.func @select(%c: tensor<2x2xi1>, %x: tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>, %z: tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x2x!quant.uniform<i8:f32, 0.5:3>> {
  %y = circle.select(%c, %x, %z) : (tensor<2x2xi1>, tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>
  func.return %y : tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @select(
// CHECK: npu.program @segment_0
// CHECK: %[[V1:.*]] = npu.elementwise mul %c, %x b_zero 3 out_zero 3 out_scale <1073741824, 1>
// CHECK-NEXT: %[[V0:.*]] = npu.elementwise mul %c, %c a_zero 1 b_zero 1
// CHECK-NEXT: %[[V2:.*]] = npu.elementwise mul %[[V0]], %z b_zero 3 out_zero 3 out_scale <1073741824, 1>
// CHECK-NEXT: npu.elementwise add %[[V1]], %[[V2]] a_zero 3 b_zero 3 out_zero 3

// -----

// A constant of equal codes is the zero point of a single product.
func.func @mask(%c: tensor<2x2xi1>, %x: tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x2x!quant.uniform<i8:f32, 0.5:3>> {
  %k = circle.const [-128] : tensor<1x!quant.uniform<i8:f32, 0.5:3>>
  %y = circle.select_v2(%c, %k, %x) : (tensor<2x2xi1>, tensor<1x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>
  func.return %y : tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @mask(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %x {{.*}} -> tensor<2x2x!quant.uniform<i8:f32, 1.0:-128>>
// CHECK-NEXT: %[[V1:.*]] = npu.elementwise mul %c, %[[V0]] a_zero 1 b_zero -128 out_zero -128 out_scale <-1073741824, 1>
// CHECK-NEXT: npu.reshape %[[V1]]

// -----

// A function of a truth is a change of scale.
func.func @cast(%c: tensor<2x2xi1>) -> tensor<2x2x!quant.uniform<i8:f32, 0.5:3>> {
  %f = circle.cast(%c) {in_data_type = bool, out_data_type = float32} : (tensor<2x2xi1>) -> tensor<2x2xf32>
  %y = circle.quantize(%f) : (tensor<2x2xf32>) -> tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>
  func.return %y : tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @cast(
// CHECK: npu.program @segment_0
// CHECK: npu.scale shifted %c out_zero 3 scale <32768, 17> clamp(3, 5)

// -----

// A known condition and its negation are constants.
func.func @known(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5>>, %z: tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>> {
  %c = circle.const [true, false] : tensor<1x2xi1>
  %y = circle.select_v2(%c, %x, %z) : (tensor<1x2xi1>, tensor<1x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5>>
  func.return %y : tensor<1x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @known(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.constant <"0x0100">
// CHECK-NEXT: %[[V1:.*]] = npu.elementwise mul %[[V0]], %x
// CHECK-NEXT: %[[V2:.*]] = npu.constant <"0x0001">
// CHECK-NEXT: %[[V3:.*]] = npu.elementwise mul %[[V2]], %z
// CHECK-NEXT: npu.elementwise add %[[V1]], %[[V3]]

// -----

// A number of 32 bits is clamped to 16, where the constant stays between the ends.
func.func @number(%x: tensor<4xi32>) -> tensor<4xi1> {
  %k = circle.const [7] : tensor<1xi32>
  %y = circle.greater(%x, %k) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi1>
  func.return %y : tensor<4xi1>
}
// CHECK-LABEL: func.func @number(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise max %x, %x clamp(-32768, 32767)
// CHECK-NEXT: %[[V1:.*]] = npu.constant <"0x0700">
// CHECK-NEXT: npu.elementwise sub %[[V0]], %[[V1]] a_scale <1073741824, 1> b_scale <1073741824, 1> out_scale <1073741824, 1> clamp(0, 1)
