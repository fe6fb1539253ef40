// RUN: odc-opt %s --split-input-file -p npu-cut-stripes | filecheck %s

// The tensor in the middle does not fit beside the others: some rows of it do. The first of a stripe's is computed again.
builtin.module attributes {odc.target = #odc.target<"npu-256", sram_limit = 58000>} {
  npu.program @segment_0(%x: tensor<1x64x64x8xi8>) -> tensor<1x32x32x8xi8> {
    %t = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x64x64x8xi8>
    %y = npu.pool max %t kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x32x32x8xi8>
    odc.yield %y : tensor<1x32x32x8xi8>
  }
}
// CHECK: [[A:%.+]] = npu.move %x copies [array<i32: 0, 0, 0, 16384, 1, 1>] : tensor<1x64x64x8xi8> -> tensor<1x32x64x8xi8>
// CHECK: [[B:%.+]] = npu.pool max [[A]] kernel [1, 1] clamp(-128, 127) : tensor<1x32x64x8xi8> -> tensor<1x32x64x8xi8>
// CHECK: [[C:%.+]] = npu.pool max [[B]] kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] {{.*}} -> tensor<1x16x32x8xi8>
// CHECK: [[D:%.+]] = npu.move %x copies [array<i32: 0, 15872, 0, 16896, 1, 1>] : tensor<1x64x64x8xi8> -> tensor<1x33x64x8xi8>
// CHECK: [[E:%.+]] = npu.pool max [[D]] kernel [1, 1] clamp(-128, 127) : tensor<1x33x64x8xi8> -> tensor<1x33x64x8xi8>
// CHECK: [[F:%.+]] = npu.pool max [[E]] kernel [3, 3] stride [2, 2] pads [0, 1, 0, 0] {{.*}} -> tensor<1x16x32x8xi8>
// CHECK: [[G:%.+]] = npu.move [[C]], [[F]] copies [array<i32: 0, 0, 0, 4096, 1, 1>, array<i32: 1, 0, 4096, 4096, 1, 1>]
// CHECK: odc.yield [[G]]

// -----

// What fits is left as it is.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @segment_0(%x: tensor<1x64x64x8xi8>) -> tensor<1x32x32x8xi8> {
    %t = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x64x64x8xi8>
    %y = npu.pool max %t kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x32x32x8xi8>
    odc.yield %y : tensor<1x32x32x8xi8>
  }
}
// CHECK: %t = npu.pool max %x
// CHECK-NEXT: %y = npu.pool max %t
// CHECK-NEXT: odc.yield %y

// -----

// Where the input, the output and one stripe of what is between are more than the limit, stripes are one row high.
builtin.module attributes {odc.target = #odc.target<"npu-256", sram_limit = 42000>} {
  npu.program @segment_0(%x: tensor<1x64x64x8xi8>) -> tensor<1x32x32x8xi8> {
    %t = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x64x64x8xi8>
    %y = npu.pool max %t kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x32x32x8xi8>
    odc.yield %y : tensor<1x32x32x8xi8>
  }
}
// CHECK: sram_limit = 42000
// CHECK-COUNT-32: npu.pool max {{.*}} -> tensor<1x1x32x8xi8>
// CHECK-NOT: npu.pool
// CHECK: odc.yield

// -----

// A program that says how it is to be cut is cut so, whatever fits.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @segment_0(%x: tensor<1x64x64x8xi8>) -> tensor<1x32x32x8xi8> attributes {npu.chains = array<i64: 0, 1, 16>} {
    %t = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x64x64x8xi8>
    %y = npu.pool max %t kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x32x32x8xi8>
    odc.yield %y : tensor<1x32x32x8xi8>
  }
}
// CHECK: npu.program
// CHECK-NOT: npu.chains
// CHECK: npu.move %x copies [array<i32: 0, 0, 0, 16384, 1, 1>] : tensor<1x64x64x8xi8> -> tensor<1x32x64x8xi8>

// -----

// An image that is resized and searched along its channels never is in memory as a whole; nor is what softmax makes of it.
builtin.module attributes {odc.target = #odc.target<"npu-256", sram_limit = 14000>} {
  npu.program @segment_0(%x: tensor<1x8x8x16x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x32x32xi32> {
    %r = npu.resize bilinear %x start [-384, -384] step [256, 256] : tensor<1x8x8x16x!quant.uniform<i8:f32, 0.5:3>> -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5:3>>
    %s = npu.softmax %r scale <1073741824, 5> diff_min -124 : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5:3>> -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.00390625:-128>>
    %y = npu.argmax %s : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.00390625:-128>> -> tensor<1x32x32xi32>
    odc.yield %y : tensor<1x32x32xi32>
  }
}
// CHECK: sram_limit = 14000
// CHECK-NOT: 1x32x32x16
// CHECK: [[A:%.+]] = npu.resize bilinear
// CHECK-NEXT: [[B:%.+]] = npu.softmax [[A]]
// CHECK-NEXT: [[C:%.+]] = npu.argmax [[B]] : tensor<1x[[N:[0-9]+]]x32x16x{{.*}} -> tensor<1x[[N]]x32xi32>
// CHECK-NOT: 1x32x32x16
// CHECK: npu.move [[C]],{{.*}} -> tensor<1x32x32xi32>
