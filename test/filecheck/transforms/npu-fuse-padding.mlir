// RUN: odc-opt %s --split-input-file --npu-fuse-padding | filecheck %s

// The convolution pads by both amounts and reads what was padded.
func.func @into_convolution(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>) -> tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5>> {
  %0 = npu.pad %x pads [0, 1, 2, 0] zero 7 : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x6x5x1x!quant.uniform<i8:f32, 0.5:7>>
  %1 = npu.conv %0 kernel [2, 2] stride [2, 2] pads [0, 0, 0, 1] weights <"0x01020304"> i8 zeros (7, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x6x5x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @into_convolution(%x: 
// CHECK-NEXT: npu.conv %x kernel [2, 2] stride [2, 2] pads [0, 1, 2, 1]

// -----

// A pool leaves padding out of its windows, so what it reads has to be padded for real.
func.func @before_pool(%x: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>) -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>> {
  %0 = npu.pad %x pads [1, 1, 0, 0] zero 7 : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:7>>
  %1 = npu.pool max %0 kernel [2, 2] clamp (-128, 127) : tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>
  func.return %1 : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>
}
// CHECK-LABEL: func.func @before_pool(
// CHECK-NEXT: %[[P:.*]] = npu.conv depthwise %{{.*}} kernel [1, 1] pads [1, 1, 0, 0] weights <"0x0101"> i8 zeros(7, 0, 7) clamp(-128, 127) bias <0, 0> multiplier <1073741824, 1073741824> exponent <1, 1>
// CHECK-NEXT: npu.pool max %[[P]]

// -----

// A convolution and a pool read the pad: only the convolution pads by itself.
func.func @before_both(%x: tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>) -> (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>) {
  %0 = npu.pad %x pads [1, 1, 0, 0] zero 7 : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:7>>
  %1 = npu.conv %0 kernel [2, 2] weights <"0x0102030405060708"> i8 zeros (7, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>
  %2 = npu.pool max %0 kernel [2, 2] clamp (-128, 127) : tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>
  func.return %1, %2 : tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>
}
// CHECK-LABEL: func.func @before_both(%x: 
// CHECK-NEXT: %[[P:.*]] = npu.conv depthwise %x kernel [1, 1] pads [1, 1, 0, 0]
// CHECK-NEXT: npu.conv %x kernel [2, 2] pads [1, 1, 0, 0]
// CHECK-NEXT: npu.pool max %[[P]]

// -----

// Types without parameters allow a convolution with another zero point: its own padding would not be the same.
func.func @another_zero_point(%x: tensor<1x4x4x1xi8>) -> tensor<1x3x3x1xi8> {
  %0 = npu.pad %x pads [0, 1, 2, 0] zero 7 : tensor<1x4x4x1xi8> -> tensor<1x6x5x1xi8>
  %1 = npu.conv %0 kernel [2, 2] stride [2, 2] pads [0, 0, 0, 1] weights <"0x01020304"> i8 zeros (5, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x6x5x1xi8> -> tensor<1x3x3x1xi8>
  func.return %1 : tensor<1x3x3x1xi8>
}
// CHECK-LABEL: func.func @another_zero_point(%x: 
// CHECK-NEXT: %[[P:.*]] = npu.conv depthwise %x kernel [1, 1] pads [0, 1, 2, 0] {{.*}}zeros(7, 0, 7)
// CHECK-NEXT: npu.conv %[[P]] kernel [2, 2] stride [2, 2] pads [0, 0, 0, 1] {{.*}}zeros(5, 0, 0)

// -----

// The convolution takes the pad that it reads; the pad before that has another reader.
func.func @pad_of_pad(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>) -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> {
  %0 = npu.pad %x pads [1, 0, 0, 0] zero 7 : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x5x4x1x!quant.uniform<i8:f32, 0.5:7>>
  %1 = npu.pad %0 pads [0, 1, 0, 0] zero 7 : tensor<1x5x4x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x5x5x1x!quant.uniform<i8:f32, 0.5:7>>
  %2 = npu.conv %1 kernel [2, 2] weights <"0x01020304"> i8 zeros (7, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x5x5x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return %2 : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @pad_of_pad(%x: 
// CHECK-NEXT: %[[P:.*]] = npu.conv depthwise %x kernel [1, 1] pads [1, 0, 0, 0]
// CHECK-NEXT: npu.conv %[[P]] kernel [2, 2] pads [0, 1, 0, 0]

// -----

// Both paddings together do not fit into the field of a load.
func.func @wide(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>) -> tensor<1x259x4x1x!quant.uniform<i8:f32, 0.5>> {
  %0 = npu.pad %x pads [255, 0, 0, 0] zero 7 : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x259x4x1x!quant.uniform<i8:f32, 0.5:7>>
  %1 = npu.conv %0 kernel [2, 1] pads [1, 0, 0, 0] weights <"0x0102"> i8 zeros (7, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x259x4x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x259x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<1x259x4x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @wide(%x: 
// CHECK-NEXT: %[[P:.*]] = npu.conv depthwise %x kernel [1, 1] pads [255, 0, 0, 0]
// CHECK-NEXT: npu.conv %[[P]] kernel [2, 1] pads [1, 0, 0, 0]
