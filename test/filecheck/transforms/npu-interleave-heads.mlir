// RUN: odc-opt %s --split-input-file -p npu-interleave-heads,dce | filecheck %s

// A part for each head: the next product comes before the softmax, which comes before the previous second product. All
// heads add the same mask.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @heads(%q: tensor<3x1x4x8xi8>, %k: tensor<3x1x8x32xi8>, %v: tensor<3x1x32x8xi8>, %mask: tensor<1x1x4x32xi8>) -> tensor<3x1x4x8xi8> {
    %s = npu.matmul %q, %k scale <1073741824, 0> clamp(-128, 127) : tensor<3x1x4x8xi8>, tensor<3x1x8x32xi8> -> tensor<3x1x4x32xi8>
    %r = npu.reshape %s : tensor<3x1x4x32xi8> -> tensor<1x3x4x32xi8>
    %m = npu.elementwise max %r, %mask clamp(-128, 127) : tensor<1x3x4x32xi8>, tensor<1x1x4x32xi8> -> tensor<1x3x4x32xi8>
    %p = npu.softmax %m scale <1073741824, 22> diff_min -31 : tensor<1x3x4x32xi8> -> tensor<1x3x4x32xi8>
    %t = npu.reshape %p : tensor<1x3x4x32xi8> -> tensor<3x1x4x32xi8>
    %y = npu.matmul %t, %v scale <1073741824, 0> clamp(-128, 127) : tensor<3x1x4x32xi8>, tensor<3x1x32x8xi8> -> tensor<3x1x4x8xi8>
    odc.yield %y : tensor<3x1x4x8xi8>
  }
}
// CHECK: %[[Q0:.*]] = npu.move %q copies [array<i32: 0, 0, 0, 32, 1, 1>]
// CHECK: %[[S0:.*]] = npu.matmul %[[Q0]], %{{.*}} : tensor<1x1x4x8xi8>, tensor<1x1x8x32xi8> -> tensor<1x1x4x32xi8>
// CHECK: %[[S1:.*]] = npu.matmul
// CHECK: %[[M0:.*]] = npu.elementwise max %[[S0]], %mask
// CHECK-NEXT: %[[P0:.*]] = npu.softmax %[[M0]]
// CHECK: npu.move %q copies [array<i32: 0, 64, 0, 32, 1, 1>]
// CHECK: npu.matmul
// CHECK: npu.softmax
// CHECK: %[[Y0:.*]] = npu.matmul %[[P0]]
// CHECK-NEXT: npu.elementwise max
// CHECK-NEXT: npu.softmax
// CHECK: %[[Y1:.*]] = npu.matmul
// CHECK: %[[Y2:.*]] = npu.matmul
// CHECK-NEXT: npu.move %[[Y0]], %[[Y1]], %[[Y2]] copies [array<i32: 0, 0, 0, 32, 1, 1>, array<i32: 1, 0, 32, 32, 1, 1>, array<i32: 2, 0, 64, 32, 1, 1>]

// -----

// The rows of a head of 8 KB are divided, and so is the mask. Two heads share a matrix.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @rows(%q: tensor<2x1x64x8xi8>, %k: tensor<1x1x8x128xi8>, %v: tensor<1x1x128x8xi8>, %mask: tensor<1x1x64x128xi8>) -> tensor<2x1x64x8xi8> {
    %s = npu.matmul %q, %k scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x64x8xi8>, tensor<1x1x8x128xi8> -> tensor<2x1x64x128xi8>
    %m = npu.elementwise max %s, %mask clamp(-128, 127) : tensor<2x1x64x128xi8>, tensor<1x1x64x128xi8> -> tensor<2x1x64x128xi8>
    %p = npu.softmax %m scale <1073741824, 22> diff_min -31 : tensor<2x1x64x128xi8> -> tensor<2x1x64x128xi8>
    %y = npu.matmul %p, %v scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x64x128xi8>, tensor<1x1x128x8xi8> -> tensor<2x1x64x8xi8>
    odc.yield %y : tensor<2x1x64x8xi8>
  }
}
// CHECK-LABEL: npu.program @rows
// CHECK: npu.matmul %{{.*}}, %k {{.*}} : tensor<1x1x32x8xi8>, tensor<1x1x8x128xi8> -> tensor<1x1x32x128xi8>
// CHECK: npu.move %q copies [array<i32: 0, 256, 0, 256, 1, 1>]
// CHECK: npu.move %mask copies [array<i32: 0, 0, 0, 4096, 1, 1>] : tensor<1x1x64x128xi8> -> tensor<1x1x32x128xi8>
// CHECK: npu.move %q copies [array<i32: 0, 512, 0, 256, 1, 1>]
// CHECK: npu.move %mask copies [array<i32: 0, 4096, 0, 4096, 1, 1>]
// CHECK: npu.matmul %{{.*}}, %v

// -----

// Slices of joined rows, as of a cache and a new row, are joined again. The next cache has some of the rows, too.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @joined(%old: tensor<1x2x127x8xi8>, %new: tensor<1x2x1x8xi8>, %q: tensor<2x1x8x1xi8>, %v: tensor<2x1x128x8xi8>) -> (tensor<2x1x1x8xi8>, tensor<1x2x127x8xi8>) {
    %keys = npu.move %old, %new copies [array<i32: 0, 0, 0, 2, 1016, 1024, 1016, 1, 1>, array<i32: 1, 0, 1016, 2, 8, 1024, 8, 1, 1>] : tensor<1x2x127x8xi8>, tensor<1x2x1x8xi8> -> tensor<1x2x128x8xi8>
    %k = npu.reshape %keys : tensor<1x2x128x8xi8> -> tensor<2x1x128x8xi8>
    %s = npu.matmul %k, %q scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x128x8xi8>, tensor<2x1x8x1xi8> -> tensor<2x1x128x1xi8>
    %r = npu.reshape %s : tensor<2x1x128x1xi8> -> tensor<2x1x1x128xi8>
    %p = npu.softmax %r scale <1073741824, 22> diff_min -31 : tensor<2x1x1x128xi8> -> tensor<2x1x1x128xi8>
    %y = npu.matmul %p, %v scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x1x128xi8>, tensor<2x1x128x8xi8> -> tensor<2x1x1x8xi8>
    %next = npu.move %keys copies [array<i32: 0, 8, 0, 2, 1024, 1016, 1016, 1, 1>] : tensor<1x2x128x8xi8> -> tensor<1x2x127x8xi8>
    odc.yield %y, %next : tensor<2x1x1x8xi8>, tensor<1x2x127x8xi8>
  }
}
// CHECK-LABEL: npu.program @joined
// CHECK-NOT: npu.move %keys
// CHECK: %[[OLD:.*]] = npu.move %old copies [array<i32: 0, 0, 0, 1016, 1, 1>]
// CHECK: %[[NEW:.*]] = npu.move %new copies [array<i32: 0, 0, 0, 8, 1, 1>]
// CHECK: npu.move %[[OLD]], %[[NEW]] copies [array<i32: 0, 0, 0, 1016, 1, 1>, array<i32: 1, 0, 1016, 8, 1, 1>]
// CHECK: npu.move %old copies [array<i32: 0, 1016, 0, 1016, 1, 1>]
// CHECK: %next = npu.move %keys

// -----

// Unchanged: one row only, sums of rows and columns, parts with less than 256 / 3 elements, scores that are also an
// output, and a matrix of more than a quarter of the weight buffer.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @one(%q: tensor<1x1x1x8xi8>, %k: tensor<1x1x8x16xi8>, %v: tensor<1x1x16x8xi8>) -> tensor<1x1x1x8xi8> {
    %s = npu.matmul %q, %k scale <1073741824, 0> clamp(-128, 127) : tensor<1x1x1x8xi8>, tensor<1x1x8x16xi8> -> tensor<1x1x1x16xi8>
    %p = npu.softmax %s scale <1073741824, 22> diff_min -31 : tensor<1x1x1x16xi8> -> tensor<1x1x1x16xi8>
    %y = npu.matmul %p, %v scale <1073741824, 0> clamp(-128, 127) : tensor<1x1x1x16xi8>, tensor<1x1x16x8xi8> -> tensor<1x1x1x8xi8>
    odc.yield %y : tensor<1x1x1x8xi8>
  }
  npu.program @sums(%q: tensor<2x1x4x8xi8>, %k: tensor<2x1x8x1xi8>, %b: tensor<2x1x1x32xi8>, %v: tensor<2x1x32x8xi8>) -> tensor<2x1x4x8xi8> {
    %s = npu.matmul %q, %k scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x4x8xi8>, tensor<2x1x8x1xi8> -> tensor<2x1x4x1xi8>
    %t = npu.elementwise max %s, %b clamp(-128, 127) : tensor<2x1x4x1xi8>, tensor<2x1x1x32xi8> -> tensor<2x1x4x32xi8>
    %p = npu.softmax %t scale <1073741824, 22> diff_min -31 : tensor<2x1x4x32xi8> -> tensor<2x1x4x32xi8>
    %y = npu.matmul %p, %v scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x4x32xi8>, tensor<2x1x32x8xi8> -> tensor<2x1x4x8xi8>
    odc.yield %y : tensor<2x1x4x8xi8>
  }
  npu.program @short(%q: tensor<2x1x1x8xi8>, %k: tensor<2x1x8x84xi8>, %v: tensor<2x1x84x8xi8>) -> tensor<2x1x1x8xi8> {
    %s = npu.matmul %q, %k scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x1x8xi8>, tensor<2x1x8x84xi8> -> tensor<2x1x1x84xi8>
    %p = npu.softmax %s scale <1073741824, 22> diff_min -31 : tensor<2x1x1x84xi8> -> tensor<2x1x1x84xi8>
    %y = npu.matmul %p, %v scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x1x84xi8>, tensor<2x1x84x8xi8> -> tensor<2x1x1x8xi8>
    odc.yield %y : tensor<2x1x1x8xi8>
  }
  npu.program @shown(%q: tensor<2x1x4x8xi8>, %k: tensor<2x1x8x32xi8>, %v: tensor<2x1x32x8xi8>) -> (tensor<2x1x4x8xi8>, tensor<2x1x4x32xi8>) {
    %s = npu.matmul %q, %k scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x4x8xi8>, tensor<2x1x8x32xi8> -> tensor<2x1x4x32xi8>
    %p = npu.softmax %s scale <1073741824, 22> diff_min -31 : tensor<2x1x4x32xi8> -> tensor<2x1x4x32xi8>
    %y = npu.matmul %p, %v scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x4x32xi8>, tensor<2x1x32x8xi8> -> tensor<2x1x4x8xi8>
    odc.yield %y, %s : tensor<2x1x4x8xi8>, tensor<2x1x4x32xi8>
  }
  npu.program @large(%q: tensor<2x1x4x40xi8>, %k: tensor<2x1x40x128xi8>, %v: tensor<2x1x128x40xi8>) -> tensor<2x1x4x40xi8> {
    %s = npu.matmul %q, %k scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x4x40xi8>, tensor<2x1x40x128xi8> -> tensor<2x1x4x128xi8>
    %p = npu.softmax %s scale <1073741824, 22> diff_min -31 : tensor<2x1x4x128xi8> -> tensor<2x1x4x128xi8>
    %y = npu.matmul %p, %v scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x4x128xi8>, tensor<2x1x128x40xi8> -> tensor<2x1x4x40xi8>
    odc.yield %y : tensor<2x1x4x40xi8>
  }
}
// CHECK-LABEL: npu.program @one
// CHECK-NOT: npu.move

// -----

// A view may change the zero point between two operations, as before a mask. Parts keep the view.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @viewed(%q: tensor<3x1x4x8xi8>, %k: tensor<3x1x8x32xi8>, %v: tensor<3x1x32x8xi8>, %mask: tensor<1x1x1x32xi8>) -> tensor<3x1x4x8xi8> {
    %s = npu.matmul %q, %k out_zero 3 scale <1073741824, 0> clamp(-128, 127) : tensor<3x1x4x8xi8>, tensor<3x1x8x32xi8> -> tensor<3x1x4x32x!quant.uniform<i8:f32, 0.5:3>>
    %r = npu.reshape %s : tensor<3x1x4x32x!quant.uniform<i8:f32, 0.5:3>> -> tensor<1x3x4x32x!quant.uniform<i8:f32, 1.0:-128>>
    %m = npu.elementwise mul %mask, %r b_zero -128 out_zero -128 out_scale <1073741824, 1> clamp(-128, 127) : tensor<1x1x1x32xi8>, tensor<1x3x4x32x!quant.uniform<i8:f32, 1.0:-128>> -> tensor<1x3x4x32x!quant.uniform<i8:f32, 1.0:-128>>
    %p = npu.softmax %m scale <1073741824, 22> diff_min -31 : tensor<1x3x4x32x!quant.uniform<i8:f32, 1.0:-128>> -> tensor<1x3x4x32xi8>
    %t = npu.reshape %p : tensor<1x3x4x32xi8> -> tensor<3x1x4x32xi8>
    %y = npu.matmul %t, %v scale <1073741824, 0> clamp(-128, 127) : tensor<3x1x4x32xi8>, tensor<3x1x32x8xi8> -> tensor<3x1x4x8xi8>
    odc.yield %y : tensor<3x1x4x8xi8>
  }
}
// CHECK-LABEL: npu.program @viewed
// CHECK: %[[S:.*]] = npu.matmul {{.*}} -> tensor<1x1x4x32x!quant.uniform<i8:f32, 0.5:3>>
// CHECK: %[[V:.*]] = npu.reshape %[[S]] : {{.*}} -> tensor<1x1x4x32x!quant.uniform<i8:f32, 1.0:-128>>
// CHECK: npu.elementwise mul %mask, %[[V]] b_zero -128

// -----

// Two heads with one query each share keys and values, and are one part. The number of parts is the number of matrices.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @shared(%k: tensor<2x1x128x8xi8>, %q: tensor<4x1x8x1xi8>, %v: tensor<2x1x128x8xi8>, %mask: tensor<1x1x1x128xi8>) -> tensor<2x1x2x8xi8> {
    %s = npu.matmul %k, %q scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x128x8xi8>, tensor<4x1x8x1xi8> -> tensor<4x1x128x1xi8>
    %r = npu.reshape %s : tensor<4x1x128x1xi8> -> tensor<1x4x1x128xi8>
    %m = npu.elementwise max %r, %mask clamp(-128, 127) : tensor<1x4x1x128xi8>, tensor<1x1x1x128xi8> -> tensor<1x4x1x128xi8>
    %p = npu.softmax %m scale <1073741824, 22> diff_min -31 : tensor<1x4x1x128xi8> -> tensor<1x4x1x128xi8>
    %t = npu.reshape %p : tensor<1x4x1x128xi8> -> tensor<2x1x2x128xi8>
    %y = npu.matmul %t, %v scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x2x128xi8>, tensor<2x1x128x8xi8> -> tensor<2x1x2x8xi8>
    odc.yield %y : tensor<2x1x2x8xi8>
  }
}
// CHECK-LABEL: npu.program @shared
// CHECK: %[[Q:.*]] = npu.move %q copies [array<i32: 0, 0, 0, 16, 1, 1>] : tensor<4x1x8x1xi8> -> tensor<2x1x8x1xi8>
// CHECK-NEXT: npu.matmul %{{.*}}, %[[Q]] {{.*}} : tensor<1x1x128x8xi8>, tensor<2x1x8x1xi8> -> tensor<2x1x128x1xi8>
// CHECK: npu.move %q copies [array<i32: 0, 16, 0, 16, 1, 1>]
// CHECK: npu.elementwise max %{{.*}}, %mask clamp(-128, 127) : tensor<1x1x2x128xi8>, tensor<1x1x1x128xi8>
// CHECK: %[[Y0:.*]] = npu.matmul {{.*}} -> tensor<1x1x2x8xi8>
// CHECK: %[[Y1:.*]] = npu.matmul {{.*}} -> tensor<1x1x2x8xi8>
// CHECK-NEXT: npu.move %[[Y0]], %[[Y1]] copies
