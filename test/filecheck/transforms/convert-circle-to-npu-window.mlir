// RUN: odc-opt %s --split-input-file -p "odc-set-target,npu-mark-supported,npu-form-groups,npu-choose-segments{strategy=supported},npu-form-segments,npu-outline-segments,convert-circle-to-npu" | filecheck %s

// A window of 3x3 in steps of 2 over 5x5 needs one row and column around the image.
func.func @average_pool(%x: tensor<1x5x5x2x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:-3>> {
  %y = circle.average_pool_2d(%x) {padding = same, stride = [2, 2], filter = [3, 3], activation = relu} : (tensor<1x5x5x2x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:-3>>
  func.return %y : tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:-3>>
}
// CHECK-LABEL: func.func @average_pool(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.pool average %{{.*}} kernel [3, 3] stride [2, 2] pads [1, 1, 1, 1] clamp(-3, 127)

// -----

// Without padding the last row and column are not read.
func.func @max_pool(%x: tensor<1x5x5x2x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>> {
  %y = circle.max_pool_2d(%x) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x5x5x2x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>
  func.return %y : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:-3>>
}
// CHECK-LABEL: func.func @max_pool(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.pool max %{{.*}} kernel [2, 2] stride [2, 2] clamp(-128, 127)

// -----

// A mean over height and width is a sum whose scale holds the division by 8 pixels.
func.func @mean(%x: tensor<2x4x2x8x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<2x8x!quant.uniform<i8:f32, 0.25:1>> {
  %i = circle.const [1, 2] : tensor<2xi32>
  %y = circle.mean(%x, %i) : (tensor<2x4x2x8x!quant.uniform<i8:f32, 0.5:-3>>, tensor<2xi32>) -> tensor<2x8x!quant.uniform<i8:f32, 0.25:1>>
  func.return %y : tensor<2x8x!quant.uniform<i8:f32, 0.25:1>>
}
// CHECK-LABEL: func.func @mean(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reduce sum %{{.*}} in_zero -3 out_zero 1 scale <1073741824, -1> clamp(-128, 127)
// CHECK-NEXT: %[[V1:.*]] = npu.reshape %[[V0]]

// -----

// A mean over the last axis is a product with ones.
func.func @mean_of_rows(%x: tensor<2x4x2x8x!quant.uniform<i8:f32, 0.5:-3>>) -> tensor<2x4x2x1x!quant.uniform<i8:f32, 0.5:-3>> {
  %i = circle.const [-1] : tensor<1xi32>
  %y = circle.mean(%x, %i) {keep_dims = true} : (tensor<2x4x2x8x!quant.uniform<i8:f32, 0.5:-3>>, tensor<1xi32>) -> tensor<2x4x2x1x!quant.uniform<i8:f32, 0.5:-3>>
  func.return %y : tensor<2x4x2x1x!quant.uniform<i8:f32, 0.5:-3>>
}
// CHECK-LABEL: func.func @mean_of_rows(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.conv %[[V0]] kernel [1, 1] weights <"0x0101010101010101"> i8 zeros(-3, 0, -3) clamp(-128, 127) bias <0> multiplier <1073741824> exponent <-2>
// CHECK-NEXT: %[[V2:.*]] = npu.reshape %[[V1]]

// -----

// SOFTMAX: input scale times beta in Q5.26.
func.func @softmax(%x: tensor<2x10x!quant.uniform<i8:f32, 0.1:5>>) -> tensor<2x10x!quant.uniform<i8:f32, 0.00390625:-128>> {
  %y = circle.softmax(%x) {beta = 1.0} : (tensor<2x10x!quant.uniform<i8:f32, 0.1:5>>) -> tensor<2x10x!quant.uniform<i8:f32, 0.00390625:-128>>
  func.return %y : tensor<2x10x!quant.uniform<i8:f32, 0.00390625:-128>>
}
// CHECK-LABEL: func.func @softmax(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.softmax %{{.*}} scale <1717986944, 23> diff_min -248

// -----

// SOFTMAX of tiny differences: all count, and the least difference that does is the least number of 32 bits.
func.func @tiny(%x: tensor<2x10x!quant.uniform<i8:f32, 1.0e-09>>) -> tensor<2x10x!quant.uniform<i8:f32, 0.00390625:-128>> {
  %y = circle.softmax(%x) {beta = 1.0} : (tensor<2x10x!quant.uniform<i8:f32, 1.0e-09>>) -> tensor<2x10x!quant.uniform<i8:f32, 0.00390625:-128>>
  func.return %y : tensor<2x10x!quant.uniform<i8:f32, 0.00390625:-128>>
}
// CHECK-LABEL: func.func @tiny(
// CHECK: npu.softmax %{{.*}} scale <1152921472, -3> diff_min -2147483648

// -----

// RESHAPE of a dense tensor moves nothing.
func.func @reshape(%x: tensor<1x1x6x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x12x!quant.uniform<i8:f32, 0.5>> {
  %s = circle.const [2, 12] : tensor<2xi32>
  %v = circle.reshape(%x, %s) : (tensor<1x1x6x4x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<2x12x!quant.uniform<i8:f32, 0.5>>
  %y = circle.relu(%v) : (tensor<2x12x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x12x!quant.uniform<i8:f32, 0.5>>
  func.return %y : tensor<2x12x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @reshape(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.scale %[[V0]] scale <1073741824, 1> clamp(0, 127)

// -----

// SQUEEZE of a dense tensor moves nothing.
func.func @squeeze(%x: tensor<1x1x6x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<6x4x!quant.uniform<i8:f32, 0.5>> {
  %v = circle.squeeze(%x) : (tensor<1x1x6x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<6x4x!quant.uniform<i8:f32, 0.5>>
  %y = circle.relu(%v) : (tensor<6x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<6x4x!quant.uniform<i8:f32, 0.5>>
  func.return %y : tensor<6x4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @squeeze(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.scale %[[V0]] scale <1073741824, 1> clamp(0, 127)

// -----

// EXPAND_DIMS of a dense tensor moves nothing.
func.func @expand_dims(%x: tensor<1x1x6x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x6x4x!quant.uniform<i8:f32, 0.5>> {
  %s = circle.const [0] : tensor<1xi32>
  %v = circle.expand_dims(%x, %s) : (tensor<1x1x6x4x!quant.uniform<i8:f32, 0.5>>, tensor<1xi32>) -> tensor<1x1x1x6x4x!quant.uniform<i8:f32, 0.5>>
  %y = circle.relu(%v) : (tensor<1x1x1x6x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x6x4x!quant.uniform<i8:f32, 0.5>>
  func.return %y : tensor<1x1x1x6x4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @expand_dims(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.scale %[[V0]] scale <1073741824, 1> clamp(0, 127)

// -----

// TRANSPOSE of a dense tensor moves nothing while only dimensions of size 1 change place.
func.func @transpose(%x: tensor<1x1x6x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x6x1x4x!quant.uniform<i8:f32, 0.5>> {
  %s = circle.const [0, 2, 1, 3] : tensor<4xi32>
  %v = circle.transpose(%x, %s) : (tensor<1x1x6x4x!quant.uniform<i8:f32, 0.5>>, tensor<4xi32>) -> tensor<1x6x1x4x!quant.uniform<i8:f32, 0.5>>
  %y = circle.relu(%v) : (tensor<1x6x1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x6x1x4x!quant.uniform<i8:f32, 0.5>>
  func.return %y : tensor<1x6x1x4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @transpose(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.reshape %{{.*}}
// CHECK-NEXT: %[[V1:.*]] = npu.scale %[[V0]] scale <1073741824, 1> clamp(0, 127)

// -----

// PAD of height by (1, 0) and width by (2, 1): top, left, bottom, right.
func.func @pad(%x: tensor<1x2x3x2x!quant.uniform<i8:f32, 0.5:7>>) -> tensor<1x3x6x2x!quant.uniform<i8:f32, 0.5:7>> {
  %p = circle.const [0, 0, 1, 0, 2, 1, 0, 0] : tensor<4x2xi32>
  %y = circle.pad(%x, %p) : (tensor<1x2x3x2x!quant.uniform<i8:f32, 0.5:7>>, tensor<4x2xi32>) -> tensor<1x3x6x2x!quant.uniform<i8:f32, 0.5:7>>
  func.return %y : tensor<1x3x6x2x!quant.uniform<i8:f32, 0.5:7>>
}
// CHECK-LABEL: func.func @pad(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.pad %{{.*}} pads [1, 2, 0, 1] zero 7

// -----

// The smallest codes are the largest ones of the opposite order.
func.func @reduce_min(%x: tensor<1x2x2x3x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x3x!quant.uniform<i8:f32, 0.5>> {
  %a = circle.const [1, 2] : tensor<2xi32>
  %0 = circle.reduce_min(%x, %a) : (tensor<1x2x2x3x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<1x3x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x3x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @reduce_min(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.scale %{{.*}} out_zero -1 scale <-1073741824, 1> clamp(-128, 127)
// CHECK-NEXT: %[[V1:.*]] = npu.reduce max %[[V0]] clamp(-128, 127)
// CHECK-NEXT: npu.scale %[[V1]] out_zero -1 scale <-1073741824, 1> clamp(-128, 127)

// -----

// What stays between axes that go comes to the front first.
func.func @mean_with_a_gap(%x: tensor<2x3x4x5x!quant.uniform<i8:f32, 0.5>>) -> tensor<3x5x!quant.uniform<i8:f32, 0.5>> {
  %a = circle.const [0, 2] : tensor<2xi32>
  %0 = circle.mean(%x, %a) : (tensor<2x3x4x5x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<3x5x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<3x5x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @mean_with_a_gap(
// CHECK: npu.program @segment_0
// CHECK: %[[V0:.*]] = npu.move %{{.*}} copies [array<i32: 0, 0, 0, 3, 20, 40, 2, 60, 20, 4, 5, 5, 5, 1, 1>] : {{.*}} -> tensor<3x2x4x5x
// CHECK-NEXT: npu.reduce sum %[[V0]]

// -----

// The largest code of each channel.
func.func @reduce_max(%x: tensor<1x2x2x3x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x3x!quant.uniform<i8:f32, 0.5>> {
  %a = circle.const [1, 2] : tensor<2xi32>
  %0 = circle.reduce_max(%x, %a) : (tensor<1x2x2x3x!quant.uniform<i8:f32, 0.5>>, tensor<2xi32>) -> tensor<1x3x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x3x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @reduce_max(
// CHECK: npu.program @segment_0
// CHECK: npu.reduce max %{{.*}} clamp(-128, 127)
