// RUN: odc-opt %s --split-input-file -p "odc-set-target,npu-mark-supported,npu-form-groups,npu-choose-segments{strategy=supported},npu-form-segments,npu-outline-segments,convert-circle-to-npu" | filecheck %s

// Indices along an axis fit 16 bits, and so does their sum.
func.func @sum(%x: tensor<2x9x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2xi32> {
  %k = circle.const [1] : tensor<1xi32>
  %i = circle.arg_max(%x, %k) {output_type = int32} : (tensor<2x9x!quant.uniform<i8:f32, 0.5:3>>, tensor<1xi32>) -> tensor<2xi32>
  %y = circle.add(%i, %k) : (tensor<2xi32>, tensor<1xi32>) -> tensor<2xi32>
  func.return %y : tensor<2xi32>
}
// CHECK-LABEL: func.func @sum(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.argmax %x
// CHECK-NEXT: %[[V1:.*]] = npu.constant <"0x01000000">
// CHECK-NEXT: npu.elementwise add %[[V0]], %[[V1]] a_scale <1073741824, 1> b_scale <1073741824, 1> out_scale <1073741824, 1> clamp(-32768, 32767)

// -----

// The rounded quotient of 2 * x - 6 by 14.
func.func @quotient(%x: tensor<2xi16>) -> tensor<2xi32> {
  %k = circle.const [7] : tensor<1xi32>
  %c = circle.cast(%x) {in_data_type = int16, out_data_type = int32} : (tensor<2xi16>) -> tensor<2xi32>
  %y = circle.floor_div(%c, %k) : (tensor<2xi32>, tensor<1xi32>) -> tensor<2xi32>
  func.return %y : tensor<2xi32>
}
// CHECK-LABEL: func.func @quotient(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise max %x, %x clamp(-32768, 32767) : tensor<2xi16>, tensor<2xi16> -> tensor<2xi32>
// CHECK-NEXT: %[[V1:.*]] = npu.constant <"0x06000000">
// CHECK-NEXT: npu.elementwise sub %[[V0]], %[[V1]] shift 1 a_scale <1073741824, 1> b_scale <1073741824, 0> out_scale <153391689, 0>

// -----

// The quotient times 7 is subtracted.
func.func @remainder(%x: tensor<2xi16>) -> tensor<2xi32> {
  %k = circle.const [7] : tensor<1xi32>
  %c = circle.cast(%x) {in_data_type = int16, out_data_type = int32} : (tensor<2xi16>) -> tensor<2xi32>
  %y = circle.floor_mod(%c, %k) : (tensor<2xi32>, tensor<1xi32>) -> tensor<2xi32>
  func.return %y : tensor<2xi32>
}
// CHECK-LABEL: func.func @remainder(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise max %x, %x
// CHECK: %[[V1:.*]] = npu.elementwise sub %[[V0]]
// CHECK-NEXT: npu.elementwise sub %[[V0]], %[[V1]] a_scale <1073741824, 1> b_scale <229376, 16> out_scale <1073741824, 1>

// -----

// Every number but zero is true.
func.func @truth(%x: tensor<2xi32>) -> tensor<2xi1> {
  %y = circle.cast(%x) {in_data_type = int32, out_data_type = bool} : (tensor<2xi32>) -> tensor<2xi1>
  func.return %y : tensor<2xi1>
}
// CHECK-LABEL: func.func @truth(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.elementwise max %x, %x clamp(-1, 1)
// CHECK-NEXT: npu.elementwise mul %[[V0]], %[[V0]] out_scale <1073741824, 1> clamp(0, 1)

// -----

// Left alone: the sum of an input may have more than 16 bits.
func.func @wide(%x: tensor<2xi32>) -> tensor<2xi32> {
  %k = circle.const [1] : tensor<1xi32>
  %y = circle.add(%x, %k) : (tensor<2xi32>, tensor<1xi32>) -> tensor<2xi32>
  func.return %y : tensor<2xi32>
}
// CHECK-LABEL: func.func @wide(
// CHECK: circle.add(%x, %k) {{.*}}"bounds: values of {{.*}} from -2147483648 to 2147483647 exceed 30 bits"
