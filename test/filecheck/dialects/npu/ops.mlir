// RUN: odc-opt %s | odc-opt | filecheck %s
// RUN: odc-opt %s --print-op-generic | odc-opt | filecheck %s

// Every operation reads back as it was written, with each optional part present and absent, from both syntaxes.
func.func @main(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>>, %u: tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5>>, %c: tensor<2x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.conv %x kernel [1, 1] weights <"0x0102"> i8 zeros (7, 0, 0) clamp (-128, 127) bias <5> multiplier <1073741824> exponent <-3> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
  %1 = npu.conv depthwise %u kernel [1, 2] stride [2, 2] dilation [1, 3] pads [0, 1, 0, 2] weights <"0x01020304"> u8 zeros (0, 9, 3) clamp (3, 200) bias <5, -6> multiplier <1, 2> exponent <3, -4> : tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5>> -> tensor<1x2x2x2x!quant.uniform<u8:f32, 0.5:3>>
  %2 = npu.elementwise add %x, %c a_zero 7 out_zero -1 shift 20 a_scale <1, 2> b_scale <3, -4> out_scale <5, -6> clamp (-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>>, tensor<2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:-1>>
  %3 = npu.elementwise mul %x, %x a_zero 7 b_zero 7 out_scale <5, -6> clamp (0, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>>, tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  %4 = npu.elementwise max %x, %x clamp (-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>>, tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>>
  %5 = npu.pool max %x kernel [2, 2] clamp (-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:7>>
  %6 = npu.pool average %x kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp (7, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>
  %7 = npu.pad %x pads [1, 2, 3, 4] zero 7 : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x8x10x2x!quant.uniform<i8:f32, 0.5:7>>
  %8 = npu.reduce sum %x in_zero 7 out_zero -2 scale <9, -9> clamp (-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:-2>>
  %9 = npu.reduce max %x clamp (-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:7>>
  %10 = npu.softmax %c scale <1717986944, 23> diff_min -248 : tensor<2x!quant.uniform<i8:f32, 0.5>> -> tensor<2x!quant.uniform<i8:f32, 0.00390625:-128>>
  %11 = npu.lut %c table <sha256_5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5, 256> : tensor<2x!quant.uniform<i8:f32, 0.5>> -> tensor<2x!quant.uniform<u8:f32, 0.5>>
  %12 = npu.scale %x in_zero 7 out_zero 2 scale <3, 4> clamp (0, 255) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5:2>>
  %13 = npu.scale shifted %c out_zero 5 scale <3, 4> clamp (0, 9) : tensor<2x!quant.uniform<i8:f32, 0.5>> -> tensor<2x!quant.uniform<i8:f32, 0.5>>
  %14 = npu.reshape %c : tensor<2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x2x!quant.uniform<i8:f32, 0.5>>
  %15 = npu.constant <"0x0102"> : tensor<2x!quant.uniform<i8:f32, 0.5>>
  %16 = npu.move %c, %15 copies [array<i32: 0, 0, 0, 2, 1, 1>, array<i32: 1, 1, 2, 2, -1, 1>] : tensor<2x!quant.uniform<i8:f32, 0.5>>, tensor<2x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %17 = npu.move %c copies [array<i32: 0, 0, 1, 2, 1, 1>] fill 7 : tensor<2x!quant.uniform<i8:f32, 0.5>> -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  %18 = npu.reshape %x : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>> -> tensor<2x1x4x4x!quant.uniform<i8:f32, 0.5:7>>
  %19 = npu.reshape %u : tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5>> -> tensor<2x1x4x4x!quant.uniform<u8:f32, 0.5>>
  %20 = npu.matmul %18, %18 a_zero 7 b_zero 7 out_zero -1 scale <5, -6> clamp (-128, 127) : tensor<2x1x4x4x!quant.uniform<i8:f32, 0.5:7>>, tensor<2x1x4x4x!quant.uniform<i8:f32, 0.5:7>> -> tensor<2x1x4x4x!quant.uniform<i8:f32, 0.5:-1>>
  %21 = npu.matmul %19, %18 b_zero 7 scale <5, -6> clamp (0, 255) : tensor<2x1x4x4x!quant.uniform<u8:f32, 0.5>>, tensor<2x1x4x4x!quant.uniform<i8:f32, 0.5:7>> -> tensor<2x1x4x4x!quant.uniform<u8:f32, 0.5>>
  func.return
}
// CHECK: %{{.*}} = npu.conv %{{.*}} kernel [1, 1] weights <"0x0102"> i8 zeros(7, 0, 0) clamp(-128, 127) bias <5> multiplier <1073741824> exponent <-3> : {{.*}} -> tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5>>
// CHECK-NEXT: %{{.*}} = npu.conv depthwise %{{.*}} kernel [1, 2] stride [2, 2] dilation [1, 3] pads [0, 1, 0, 2] weights <"0x01020304"> u8 zeros(0, 9, 3) clamp(3, 200) bias <5, -6> multiplier <1, 2> exponent <3, -4> : {{.*}} -> tensor<1x2x2x2x!quant.uniform<u8:f32, 0.5:3>>
// CHECK-NEXT: %{{.*}} = npu.elementwise add %{{.*}}, %{{.*}} a_zero 7 out_zero -1 shift 20 a_scale <1, 2> b_scale <3, -4> out_scale <5, -6> clamp(-128, 127) : {{.*}} -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:-1>>
// CHECK-NEXT: %{{.*}} = npu.elementwise mul %{{.*}}, %{{.*}} a_zero 7 b_zero 7 out_scale <5, -6> clamp(0, 127) : {{.*}} -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
// CHECK-NEXT: %{{.*}} = npu.elementwise max %{{.*}}, %{{.*}} clamp(-128, 127) : {{.*}} -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:7>>
// CHECK-NEXT: %{{.*}} = npu.pool max %{{.*}} kernel [2, 2] clamp(-128, 127) : {{.*}} -> tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5:7>>
// CHECK-NEXT: %{{.*}} = npu.pool average %{{.*}} kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(7, 127) : {{.*}} -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5:7>>
// CHECK-NEXT: %{{.*}} = npu.pad %{{.*}} pads [1, 2, 3, 4] zero 7 : {{.*}} -> tensor<1x8x10x2x!quant.uniform<i8:f32, 0.5:7>>
// CHECK-NEXT: %{{.*}} = npu.reduce sum %{{.*}} in_zero 7 out_zero -2 scale <9, -9> clamp(-128, 127) : {{.*}} -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:-2>>
// CHECK-NEXT: %{{.*}} = npu.reduce max %{{.*}} clamp(-128, 127) : {{.*}} -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5:7>>
// CHECK-NEXT: %{{.*}} = npu.softmax %{{.*}} scale <1717986944, 23> diff_min -248 : {{.*}} -> tensor<2x!quant.uniform<i8:f32, 0.00390625:-128>>
// CHECK-NEXT: %{{.*}} = npu.lut %{{.*}} table <sha256_5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5, 256> : {{.*}} -> tensor<2x!quant.uniform<u8:f32, 0.5>>
// CHECK-NEXT: %{{.*}} = npu.scale %{{.*}} in_zero 7 out_zero 2 scale <3, 4> clamp(0, 255) : {{.*}} -> tensor<1x4x4x2x!quant.uniform<u8:f32, 0.5:2>>
// CHECK-NEXT: %{{.*}} = npu.scale shifted %{{.*}} out_zero 5 scale <3, 4> clamp(0, 9) : {{.*}} -> tensor<2x!quant.uniform<i8:f32, 0.5>>
// CHECK-NEXT: %{{.*}} = npu.reshape %{{.*}} : {{.*}} -> tensor<1x2x!quant.uniform<i8:f32, 0.5>>
// CHECK-NEXT: %{{.*}} = npu.constant <"0x0102"> : tensor<2x!quant.uniform<i8:f32, 0.5>>
// CHECK-NEXT: %{{.*}} = npu.move %{{.*}}, %{{.*}} copies [array<i32: 0, 0, 0, 2, 1, 1>, array<i32: 1, 1, 2, 2, -1, 1>] : {{.*}} -> tensor<4x!quant.uniform<i8:f32, 0.5>>
// CHECK-NEXT: %{{.*}} = npu.move %{{.*}} copies [array<i32: 0, 0, 1, 2, 1, 1>] fill 7 : {{.*}} -> tensor<4x!quant.uniform<i8:f32, 0.5>>
// CHECK: %{{.*}} = npu.matmul %{{.*}}, %{{.*}} a_zero 7 b_zero 7 out_zero -1 scale <5, -6> clamp(-128, 127) : {{.*}} -> tensor<2x1x4x4x!quant.uniform<i8:f32, 0.5:-1>>
// CHECK-NEXT: %{{.*}} = npu.matmul %{{.*}}, %{{.*}} b_zero 7 scale <5, -6> clamp(0, 255) : {{.*}} -> tensor<2x1x4x4x!quant.uniform<u8:f32, 0.5>>

// A cell without an input gate, and one whose first dimension is time.
func.func @cells(%x: tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, %t: tensor<3x1x2x!quant.uniform<i8:f32, 0.5>>, %h: tensor<1x1x!quant.uniform<i8:f32, 0.5:-1>>, %i: tensor<1x1x!quant.uniform<i8:f32, 0.5>>, %c: tensor<1x1x!quant.uniform<i16:f32, 0.5>>) {
  %0, %1, %2 = npu.lstm %x, %h, %c inputs <"0x010203040506"> bias <1, 2, 3> scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] recurrent <"0x010203"> hidden_zero -1 scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] cell_exponent -11 clip 99 scale <7, -8> out_zero -1 : (tensor<1x3x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5:-1>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>) -> (tensor<1x3x1x!quant.uniform<i8:f32, 0.5:-1>>, tensor<1x1x!quant.uniform<i8:f32, 0.5:-1>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>)
  %3, %4, %5 = npu.lstm %t, %i, %c time_major inputs <"0x0102030405060708"> bias <1, 2, 3, 4> scales [#npu.scale<1, 2>, #npu.scale<1, 2>, #npu.scale<1, 2>, #npu.scale<1, 2>] recurrent <"0x01020304"> scales [#npu.scale<1, 2>, #npu.scale<1, 2>, #npu.scale<1, 2>, #npu.scale<1, 2>] cell_exponent -11 scale <7, -8> : (tensor<3x1x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>) -> (tensor<3x1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.5>>)
  func.return
}
// CHECK: %{{.*}}, %{{.*}}, %{{.*}} = npu.lstm %{{.*}}, %{{.*}}, %{{.*}} inputs <"0x010203040506"> bias <1, 2, 3> scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] recurrent <"0x010203"> hidden_zero -1 scales [#npu.scale<1, 2>, #npu.scale<3, 4>, #npu.scale<5, 6>] cell_exponent -11 clip 99 scale <7, -8> out_zero -1 :
// CHECK-NEXT: npu.lstm {{.*}} time_major inputs <"0x0102030405060708"> bias <1, 2, 3, 4> scales {{.*}} recurrent <"0x01020304"> scales {{.*}} cell_exponent -11 scale <7, -8> :


func.func @searched(%x: tensor<2x3x!quant.uniform<i8:f32, 0.5>>) {
  %0 = npu.argmax %x : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<2xi32>
  %1 = npu.argmax %x : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<2xi64>
  func.return
}
func.func @updated(%x: tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, %z: tensor<2x3x4x!quant.uniform<i8:f32, 0.5>>, %s: tensor<3xi32>) {
  %0 = npu.update %x at %s[1] to %z : tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, tensor<2x3x4x!quant.uniform<i8:f32, 0.5>>, tensor<3xi32> -> tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>
  func.return
}
func.func @gathered(%t: tensor<1x2x9x4x!quant.uniform<i16:f32, 0.5>>, %i: tensor<1x3xi64>) {
  %0 = npu.gather %t[%i] : tensor<1x2x9x4x!quant.uniform<i16:f32, 0.5>>, tensor<1x3xi64> -> tensor<1x2x3x4x!quant.uniform<i16:f32, 0.5>>
  func.return
}
// CHECK: npu.argmax %{{.*}} -> tensor<2xi32>
// CHECK-NEXT: npu.argmax %{{.*}} -> tensor<2xi64>
// CHECK: npu.update %{{.*}} at %{{.*}}[1] to %{{.*}} : tensor<2x5x4x
// CHECK: npu.gather %{{.*}}[%{{.*}}] : tensor<1x2x9x4x{{.*}}, tensor<1x3xi64> -> tensor<1x2x3x4x

func.func @resized(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>, %y: tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>>) {
  %0 = npu.resize nearest %x start [0, -7] step [8388608, 6710887] : tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x5x1x!quant.uniform<i8:f32, 0.5>>
  %1 = npu.resize bilinear %x start [-256, -307] step [512, 410] : tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x5x1x!quant.uniform<i8:f32, 0.5>>
  %2 = npu.resize bilinear %y start [-256, -256] step [512, 512] : tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>> -> tensor<1x4x4x1x!quant.uniform<i16:f32, 0.5>>
  func.return
}
// CHECK: npu.resize nearest %{{.*}} start [0, -7] step [8388608, 6710887] : tensor<1x2x2x1x{{.*}} -> tensor<1x4x5x1x
// CHECK-NEXT: npu.resize bilinear %{{.*}} start [-256, -307] step [512, 410] :
// CHECK-NEXT: npu.resize bilinear %{{.*}} start [-256, -256] step [512, 512] : tensor<1x2x2x1x!quant.uniform<i16
