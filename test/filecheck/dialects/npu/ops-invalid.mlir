// RUN: odc-opt %s --split-input-file --print-diagnostics | filecheck %s

// What the verifier refuses, one rule per case.

// Shapes are known.
func.func @f(%x: tensor<?x4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.reshape %x : tensor<?x4x!quant.uniform<i8:f32, 0.5>> -> tensor<?x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.reshape needs static shapes, tensor<?x4x!quant.uniform<i8:f32, 0.5>> has an unknown dimension

// -----

// Codes have 8 or 16 bits.
func.func @f(%x: tensor<4xf32>) {
  %0 = npu.reshape %x : tensor<4xf32> -> tensor<4xf32>
  func.return
}
// CHECK: npu.reshape computes with codes of bool, int8, uint8, int16, int32, int64, not float32

// -----

// A convolution reads images.
func.func @f(%x: tensor<4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv needs [N, H, W, C] tensors, not rank 3

// -----

// The kernel has two sizes.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv needs 2 values in kernel, not 1

// -----

// Padding has four.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] pads [1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv needs 4 values in pads, not 1

// -----

// Strides are positive.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] stride [0, 1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: kernel, stride and dilation are at least 1, pads at least 0

// -----

// The result has the size that the window gives.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 2] weights <"0x0101"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: the window gives width 3, the result has 4

// -----

// And as many images as the input.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<2x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: input batch 1 and result batch 2 differ

// -----

// Depthwise: each input channel gives as many results.
func.func @f(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv depthwise %x kernel [1, 1] weights <"0x010101"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0, 0, 0> multiplier <1, 1, 1> exponent <0, 0, 0> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x3x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: 3 result channels for 2 input channels

// -----

// One bias per result channel.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0, 0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv needs 1 values in bias, not 2

// -----

// And as many weights as kernel and channels ask for.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x0101"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv needs 1 bytes of weights [1, 1, 1, 1], the blob has 2

// -----

// 16-bit weights go with 16-bit inputs.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x0101"> i16 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: 16-bit weights and wide sums go with 16-bit inputs

// -----

// So do wide sums.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv wide %x kernel [1, 1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: 16-bit weights and wide sums go with 16-bit inputs

// -----

// Codes that a convolution reads and writes have one size.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: codes of {{.*}} differ in size

// -----

// Those of a table as well.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>>) {
  %0 = npu.lut %x table <"0x00"> : tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.lut: codes of {{.*}} differ in size

// -----

// A table of 16-bit codes has 513 entries.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>>) {
  %0 = npu.lut %x table <"0x00"> : tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>>
  func.return
}
// CHECK: npu.lut needs a table of 1026 bytes, not 1

// -----

// Softmax of 16-bit codes looks its exponentials up.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>>) {
  %0 = npu.softmax %x scale <1, 0> : tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>>
  func.return
}
// CHECK: npu.softmax of int16 needs a table

// -----

// Softmax of others does not.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.softmax %x scale <1, 0> table <"0x00"> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.softmax of int8 takes no table

// -----

// Sigmoids are of 16-bit codes.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.sigmoid tanh %x multiplier 1 shift 0 table <"0x00"> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.sigmoid computes with codes of int16, not int8

// -----

// The multiplier of a position has 15 bits.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>>) {
  %0 = npu.sigmoid tanh %x multiplier 32768 shift 0 table <"0x00"> : tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>>
  func.return
}
// CHECK: npu.sigmoid: the multiplier has 15 bits and the shift is 0 to 31

// -----

// Numbers fit the instruction.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x01"> i8 zeros (40000, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: in_zero is 40000, the instruction holds -32768 to 32767

// -----

// A zero point is the one in the type of its operand, and of its result.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x01"> i8 zeros (5, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: in_zero is 5, allowed is the zero point in the type of its input, 7

// -----

func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>) {
  %0 = npu.scale %x in_zero 7 out_zero 2 scale <1, 0> clamp (-128, 127) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.scale: out_zero is 2, allowed is the zero point in the type of its output, 0

// -----

// Dilations too.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] dilation [256, 1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (-128, 127) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: dilation_y is 256, the instruction holds 0 to 255

// -----

// The clamp lies inside the type.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x01"> i8 zeros (0, 0, 0) clamp (0, 200) bias <0> multiplier <1> exponent <0> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.conv: clamp [0, 200] is not an interval inside [-128, 127]

// -----

// An addition scales its operands.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.elementwise add %x, %x out_scale <1, 0> clamp (0, 1) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.elementwise add needs a_scale

// -----

// A maximum does not.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.elementwise max %x, %x out_scale <1, 0> clamp (0, 1) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.elementwise max takes no out_scale

// -----

// Shapes broadcast to the result.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.elementwise max %x, %x clamp (0, 1) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.elementwise: shapes [1, 4, 4, 1] and [1, 4, 4, 1] do not broadcast to [1, 4, 4, 2]

// -----

// A pool keeps the type.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.pool max %x kernel [1, 1] clamp (0, 1) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<u8:f32, 0.5>>
  func.return
}
// CHECK: npu.pool keeps element type, batch and channels,

// -----

// Batch and channels.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.pool max %x kernel [1, 1] clamp (0, 1) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.pool keeps element type, batch and channels, tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> became tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>

// -----

// Each window of a pool meets the image.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.pool max %x kernel [1, 1] pads [1, 0, 1, 0] clamp (0, 1) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x6x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.pool: some windows lie wholly in the padding

// -----

// Padding adds to height and width.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.pad %x pads [0, 0, 0, 0] zero 0 : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.pad keeps element type, batch and channels,

// -----

// A reduction leaves one pixel.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.reduce max %x clamp (0, 1) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.reduce gives [1, 1, 1, 1], not [1, 4, 4, 1]

// -----

// A sum has a scale.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.reduce sum %x clamp (0, 1) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.reduce sum needs a scale

// -----

// A maximum has none.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.reduce max %x scale <1, 0> clamp (0, 1) : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.reduce max takes no scale

// -----

// Softmax, tables and scales keep the shape.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.softmax %x scale <1, 0> diff_min 0 : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<4x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.softmax keeps the shape, [1, 4, 4, 1] became [4, 4]

// -----

// A table has an entry for every code.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.lut %x table <"0x00"> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.lut needs a table of 256 bytes, not 1

// -----

// A view keeps all elements.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.reshape %x : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>> -> tensor<4x5x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.reshape keeps all elements,

// -----

// A constant has a byte for each.
func.func @f(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.constant <"0x00"> : tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.constant needs 16 bytes, the blob has 1

// -----

// A piece is made of three numbers and three for each loop.
func.func @f(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.move %x copies [array<i32: 0, 0, 0, 4, 1>] : tensor<4x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.move: a copy has 5 integers, expected 3 and 3 for each loop

// -----

func.func @f(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.move %x copies [array<i32: 1, 0, 0, 4, 1, 1>] : tensor<4x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.move: a copy reads operand 1 in loops of [4]

// -----

// Pieces stay in their tensors.
func.func @f(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.move %x copies [array<i32: 0, 2, 0, 4, -1, 1>] : tensor<4x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.move reads elements -1 to 2 of 4

// -----

func.func @f(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.move %x copies [array<i32: 0, 0, 1, 4, 1, 1>] : tensor<4x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.move writes elements 1 to 4 of 4

// -----

// What nothing writes has a fill code, and only that.
func.func @f(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.move %x copies [array<i32: 0, 0, 0, 3, 1, 1>] : tensor<4x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.move moves 3 of 4 elements and has no fill code

// -----

// Numbers that are not codes are moved, not filled.
func.func @f(%x: tensor<4xi32>) {
  %0 = npu.move %x copies [array<i32: 0, 0, 0, 4, 1, 1>] fill 3 : tensor<4xi32> -> tensor<5xi32>
  func.return
}
// CHECK: npu.move fills codes, not int32

// -----

func.func @f(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.move %x copies [array<i32: 0, 0, 0, 4, 1, 1>] fill 1 : tensor<4x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.move moves 4 of 4 elements and has a fill code

// -----

func.func @f(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.move %x copies [array<i32: 0, 0, 0, 3, 1, 1>] fill 200 : tensor<4x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.move: the fill code is 200, allowed -128 to 127

// -----

func.func @f(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.move %x copies [array<i32: 0, 0, 0, 4, 1, 1>] : tensor<4x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<u8:f32, 0.5>>
  func.return
}
// CHECK: npu.move keeps the element type, tensor<4x!quant.uniform<i8:f32, 0.5>> became tensor<4x!quant.uniform<u8:f32, 0.5>>

// -----

// Matrices of a product are single rows of an image, as many on both sides, that fit each other.
func.func @f(%x: tensor<2x1x4x3x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.matmul %x, %x scale <1, 0> clamp(-128, 127) : tensor<2x1x4x3x!quant.uniform<i8:f32, 0.5>>, tensor<2x1x4x3x!quant.uniform<i8:f32, 0.5>> -> tensor<2x1x4x3x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.matmul: [2, 1, 4, 3] by [2, 1, 4, 3] is not a product of [N, 1, M, K] by [N, 1, K, C]

// -----

func.func @f(%x: tensor<1x2x3x3x!quant.uniform<i8:f32, 0.5>>, %y: tensor<1x1x3x3x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.matmul %x, %y scale <1, 0> clamp(-128, 127) : tensor<1x2x3x3x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x3x3x!quant.uniform<i8:f32, 0.5>> -> tensor<1x2x3x3x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.matmul: [1, 2, 3, 3] by [1, 1, 3, 3] is not a product

// -----

func.func @f(%x: tensor<2x1x3x3x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.matmul %x, %x scale <1, 0> clamp(-128, 127) : tensor<2x1x3x3x!quant.uniform<i8:f32, 0.5>>, tensor<2x1x3x3x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x6x3x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.matmul gives [2, 1, 3, 3], not [1, 1, 6, 3]

// -----

func.func @f(%x: tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>, %y: tensor<1x1x1x65536x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.matmul %x, %y scale <1, 0> clamp(-128, 127) : tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x1x65536x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x1x65536x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.matmul: columns is 65536, the instruction holds 0 to 65535

// -----

func.func @f(%x: tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, %h: tensor<1x1x!quant.uniform<i8:f32, 0.5>>, %c: tensor<1x1x!quant.uniform<i16:f32, 0.5>>) {
  %0, %1, %2 = npu.lstm %x, %h, %h inputs <"0x010203040506"> bias <1, 2, 3> scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] recurrent <"0x010203"> hidden_zero -1 scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] cell_exponent -11 clip 99 scale <7, -8> out_zero -1 : (tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>) -> (tensor<1x3x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>)
  func.return
}
// CHECK: npu.lstm: the cell is int8 [1, 1], not int16 [1, 1]

// -----

func.func @f(%x: tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, %h: tensor<1x1x!quant.uniform<i8:f32, 0.5>>, %c: tensor<1x1x!quant.uniform<i16:f32, 0.5>>) {
  %0, %1, %2 = npu.lstm %h, %h, %c inputs <"0x010203040506"> bias <1, 2, 3> scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] recurrent <"0x010203"> hidden_zero -1 scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] cell_exponent -11 clip 99 scale <7, -8> out_zero -1 : (tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>) -> (tensor<1x3x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>)
  func.return
}
// CHECK: npu.lstm: the input has rank 2, not 3

// -----

func.func @f(%x: tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, %h: tensor<1x1x!quant.uniform<i8:f32, 0.5>>, %c: tensor<1x1x!quant.uniform<i16:f32, 0.5>>) {
  %0, %1, %2 = npu.lstm %x, %h, %c inputs <"0x010203040506"> bias <1, 2, 3> scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] recurrent <"0x010203"> hidden_zero -1 scales [#npu.scale<1, 2>] cell_exponent -11 clip 99 scale <7, -8> out_zero -1 : (tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>) -> (tensor<1x3x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>)
  func.return
}
// CHECK: npu.lstm needs 4 scales of either kind, or 3, not 3 and 1

// -----

func.func @f(%x: tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, %h: tensor<1x1x!quant.uniform<i8:f32, 0.5>>, %c: tensor<1x1x!quant.uniform<i16:f32, 0.5>>) {
  %0, %1, %2 = npu.lstm %x, %h, %c inputs <"0x01"> bias <1, 2, 3> scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] recurrent <"0x010203"> hidden_zero -1 scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] cell_exponent -11 clip 99 scale <7, -8> out_zero -1 : (tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>) -> (tensor<1x3x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>)
  func.return
}
// CHECK: npu.lstm needs 6 input_weights, the blob has 1

// -----

func.func @f(%x: tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, %h: tensor<1x1x!quant.uniform<i8:f32, 0.5>>, %c: tensor<1x1x!quant.uniform<i16:f32, 0.5>>) {
  %0, %1, %2 = npu.lstm %x, %h, %c inputs <"0x010203040506"> bias <1, 2> scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] recurrent <"0x010203"> hidden_zero -1 scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] cell_exponent -11 clip 99 scale <7, -8> out_zero -1 : (tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>) -> (tensor<1x3x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>)
  func.return
}
// CHECK: npu.lstm needs 3 values in bias, not 2

// -----

func.func @f(%x: tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, %h: tensor<1x1x!quant.uniform<i8:f32, 0.5>>, %c: tensor<1x1x!quant.uniform<i16:f32, 0.5>>) {
  %0, %1, %2 = npu.lstm %x, %h, %c inputs <"0x010203040506"> bias <1, 2, 3> scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] recurrent <"0x010203"> hidden_zero -1 scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] cell_exponent -11 clip 65536 scale <7, -8> out_zero -1 : (tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>) -> (tensor<1x3x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>)
  func.return
}
// CHECK: npu.lstm: clip is 65536, the instruction holds 0 to 65535

// -----

// Weights are as wide as the input at most.
func.func @f(%x: tensor<1x1x3x3x!quant.uniform<i8:f32, 0.5>>, %y: tensor<1x1x3x3x!quant.uniform<i16:f32, 0.5>>) {
  %0 = npu.matmul %x, %y scale <1, 0> clamp(-128, 127) : tensor<1x1x3x3x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x3x3x!quant.uniform<i16:f32, 0.5>> -> tensor<1x1x3x3x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: a and result have codes of one size, b none larger

// -----

func.func @f(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.resize nearest %x start [0, 0] step [1, 1] : tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x5x2x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.resize keeps element type, batch and channels

// -----

func.func @f(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.resize nearest %x start [0] step [1, 1] : tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x5x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.resize needs 2 values in start, not 1

// -----

func.func @f(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.resize nearest %x start [0, 0] step [1, -1] : tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x5x1x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.resize: step_x is -1, the instruction holds 0 to 4294967295

// -----

func.func @f(%x: tensor<2x3x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.argmax %x : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<3xi32>
  func.return
}
// CHECK: npu.argmax drops the last axis, [2, 3] became [3]

// -----

func.func @f(%x: tensor<2x3x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.argmax %x : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<2x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.argmax gives numbers of int32, int64, not int8

// -----

func.func @f(%x: tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, %z: tensor<2x3x4x!quant.uniform<i8:f32, 0.5>>, %s: tensor<3xi32>) {
  %0 = npu.update %x at %s[3] to %z : tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, tensor<2x3x4x!quant.uniform<i8:f32, 0.5>>, tensor<3xi32> -> tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.update takes element 3 of a vector, not of [3]

// -----

func.func @f(%x: tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, %z: tensor<2x3x3x!quant.uniform<i8:f32, 0.5>>, %s: tensor<3xi32>) {
  %0 = npu.update %x at %s[1] to %z : tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, tensor<2x3x3x!quant.uniform<i8:f32, 0.5>>, tensor<3xi32> -> tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.update replaces rows of [K, R, C] by [K, N, C], not of [2, 5, 4] by [2, 3, 3] to [2, 5, 4]

// -----

func.func @f(%x: tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, %z: tensor<2x3x4x!quant.uniform<i16:f32, 0.5>>, %s: tensor<3xi32>) {
  %0 = npu.update %x at %s[1] to %z : tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, tensor<2x3x4x!quant.uniform<i16:f32, 0.5>>, tensor<3xi32> -> tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.update takes int8 here, not int16

// -----

func.func @f(%x: tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, %z: tensor<2x3x4x!quant.uniform<i8:f32, 0.5>>, %s: tensor<3x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.update %x at %s[1] to %z : tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, tensor<2x3x4x!quant.uniform<i8:f32, 0.5>>, tensor<3x!quant.uniform<i8:f32, 0.5>> -> tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.update takes int32 here, not int8

// -----

func.func @f(%t: tensor<1x2x9x4x!quant.uniform<i8:f32, 0.5>>, %i: tensor<1x3xi64>) {
  %0 = npu.gather %t[%i] : tensor<1x2x9x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x3xi64> -> tensor<1x2x3x5x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.gather takes rows of [B, K, R, C] by [B, N], not of [1, 2, 9, 4] by [1, 3] to [1, 2, 3, 5]

// -----

func.func @f(%t: tensor<2x2x9x4x!quant.uniform<i8:f32, 0.5>>, %i: tensor<1x3xi64>) {
  %0 = npu.gather %t[%i] : tensor<2x2x9x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x3xi64> -> tensor<2x2x3x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.gather takes rows of [B, K, R, C] by [B, N], not of [2, 2, 9, 4] by [1, 3] to [2, 2, 3, 4]

// -----

func.func @f(%t: tensor<9x4x!quant.uniform<i8:f32, 0.5>>, %i: tensor<1x3xi64>) {
  %0 = npu.gather %t[%i] : tensor<9x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x3xi64> -> tensor<3x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.gather takes rows of [B, K, R, C] by [B, N], not of [9, 4] by [1, 3] to [3, 4]

// -----

func.func @f(%t: tensor<1x2x9x4x!quant.uniform<i8:f32, 0.5>>, %i: tensor<1x3xi64>) {
  %0 = npu.gather %t[%i] : tensor<1x2x9x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x3xi64> -> tensor<1x2x3x4x!quant.uniform<u8:f32, 0.5>>
  func.return
}
// CHECK: npu.gather takes uint8 here, not int8

// -----

func.func @f(%t: tensor<1x2x9x4x!quant.uniform<i8:f32, 0.5>>, %i: tensor<1x3x!quant.uniform<i16:f32, 0.5>>) {
  %0 = npu.gather %t[%i] : tensor<1x2x9x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x3x!quant.uniform<i16:f32, 0.5>> -> tensor<1x2x3x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.gather takes int32, int64 here, not int16

// -----

func.func @f(%t: tensor<1x1x2x1048576x!quant.uniform<i8:f32, 0.5>>, %i: tensor<1x3xi64>) {
  %0 = npu.gather %t[%i] : tensor<1x1x2x1048576x!quant.uniform<i8:f32, 0.5>>, tensor<1x3xi64> -> tensor<1x1x3x1048576x!quant.uniform<i8:f32, 0.5>>
  func.return
}
// CHECK: npu.gather: row_bytes is 1048576, the instruction holds 0 to 1048575
