// RUN: odc-opt %s --split-input-file -p npu-choose-tiles,npu-lower-to-tiles | filecheck %s

// Weights go into array order, equal multipliers are kept once in front of the biases.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv %x kernel [1, 1] weights <"0x01020304"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-DAG: %[[W:.*]] = npu.buffer "weights" data <"0x01030204"> : !npu.buffer<constants, 4xi8>
// CHECK-DAG: %[[P:.*]] = npu.buffer "params" data <"0x00000040000100000002000000"> : !npu.buffer<constants, 13xi8>
// CHECK: npu.isa.load
// CHECK: npu.isa.wload source %[[W]]
// CHECK: npu.isa.param source %[[P]] {{.*}}form "bias"
// CHECK: npu.isa.conv
// CHECK: npu.isa.store
// CHECK-NEXT: npu.isa.halt

// -----

// A tensor between two layers that fits in the tile buffer is neither stored nor loaded.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>> {
    %p = npu.pool max %x kernel [2, 2] stride [2, 2] clamp(-128, 127) : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>>
    %y = npu.pool max %p kernel [2, 2] clamp(-128, 127) : tensor<1x2x2x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x1x1x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.isa.load
// CHECK-NEXT: npu.isa.pool {{.*}} output %[[R:[a-z0-9_]+]]
// CHECK-NEXT: npu.buffer "output"
// CHECK-NEXT: npu.buffer "output"
// CHECK-NEXT: npu.isa.pool {{.*}} input %[[R]]
// CHECK-NEXT: npu.isa.store
// CHECK-NEXT: npu.isa.halt

// -----

// A move: the fill code everywhere first, then every nest through the tile buffer, transposed by the store.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @move(%a: tensor<1x4x8x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x8x6x!quant.uniform<i8:f32, 0.5>> {
    %m = npu.move %a copies [array<i32: 0, 0, 1, 8, 1, 6, 4, 8, 1>] fill 7 : tensor<1x4x8x!quant.uniform<i8:f32, 0.5>> -> tensor<1x8x6x!quant.uniform<i8:f32, 0.5>>
    odc.yield %m : tensor<1x8x6x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-LABEL: npu.program @move(
// CHECK: npu.isa.fill target %{{.*}} bytes 48 value 7
// CHECK-NEXT: npu.isa.store {{.*}} size0 48
// CHECK-NEXT: npu.isa.load {{.*}} size0 8 size1 4 memory_stride1 8 tile_stride1 8
// CHECK-NEXT: npu.isa.store target %{{.*}} + 1 {{.*}} size0 1 size1 4 size2 8 memory_stride1 1 memory_stride2 6 tile_stride1 8 tile_stride2 1
// CHECK-NEXT: npu.isa.halt

// -----

// A computed right-hand side enters the weight buffer image by image, from where it lies.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%a: tensor<2x1x5x3x!quant.uniform<i8:f32, 0.5:1>>, %b: tensor<2x1x3x40x!quant.uniform<i8:f32, 0.5:2>>) -> tensor<2x1x5x40x!quant.uniform<i8:f32, 0.5:3>> {
    %y = npu.matmul %a, %b a_zero 1 b_zero 2 out_zero 3 scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x5x3x!quant.uniform<i8:f32, 0.5:1>>, tensor<2x1x3x40x!quant.uniform<i8:f32, 0.5:2>> -> tensor<2x1x5x40x!quant.uniform<i8:f32, 0.5:3>>
    odc.yield %y : tensor<2x1x5x40x!quant.uniform<i8:f32, 0.5:3>>
  }
}
// CHECK: %[[B:.*]] = npu.buffer {{.*}} binds [1]
// CHECK: npu.isa.mload source %[[B]] target %{{.*}} rows 3 columns 40 row_stride 40 group 16
// CHECK: npu.isa.conv {{.*}} in_zero 1 weight_zero 2
// CHECK: npu.isa.mload source %[[B]] + 120 target
// CHECK: npu.isa.conv

// -----

// An addition that is computed with each tile: the other operand is loaded, the sum takes the tile's place.
builtin.module attributes {odc.target = #odc.target<"npu-128", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv depthwise %x kernel [1, 1] weights <"0x01010101010101010101010101010101"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1> multiplier <1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824, 1073741824> exponent <0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0> : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> loc("conv")
    %z = npu.elementwise add %x, %y shift 20 a_scale <1073741824, 0> b_scale <1073741824, 0> out_scale <1073741824, 0> clamp(-128, 127) : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>>, tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> -> tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>> loc("add")
    odc.yield %z : tensor<1x32x32x16x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.program @segment_0{{.*}}npu.fused = {add = "conv"}
// CHECK: npu.isa.conv {{.*}} output %[[TILE:[a-z0-9_]+]] {{.*}} loc("conv")
// CHECK-NEXT: npu.isa.load {{.*}} target %[[OTHER:[a-z0-9_]+]] {{.*}} loc("add")
// CHECK-NEXT: npu.isa.vop {{.*}} a %[[OTHER]] {{.*}} b %[[TILE]] {{.*}} output %[[TILE]] {{.*}} loc("add")
// CHECK-NEXT: npu.isa.store {{.*}} source %[[TILE]] {{.*}} loc("add")

// -----

// The table that was loaded last is not loaded again.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x1x1x16xi8>, %z: tensor<1x1x1x16xi8>) -> (tensor<1x1x1x16xi8>, tensor<1x1x1x16xi8>, tensor<1x1x1x16xi8>) {
    %a = npu.lut %x table <"0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"> : tensor<1x1x1x16xi8> -> tensor<1x1x1x16xi8>
    %b = npu.lut %z table <"0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"> : tensor<1x1x1x16xi8> -> tensor<1x1x1x16xi8>
    %c = npu.lut %b table <"0xfffefdfcfbfaf9f8f7f6f5f4f3f2f1f0efeeedecebeae9e8e7e6e5e4e3e2e1e0dfdedddcdbdad9d8d7d6d5d4d3d2d1d0cfcecdcccbcac9c8c7c6c5c4c3c2c1c0bfbebdbcbbbab9b8b7b6b5b4b3b2b1b0afaeadacabaaa9a8a7a6a5a4a3a2a1a09f9e9d9c9b9a999897969594939291908f8e8d8c8b8a898887868584838281807f7e7d7c7b7a797877767574737271706f6e6d6c6b6a696867666564636261605f5e5d5c5b5a595857565554535251504f4e4d4c4b4a494847464544434241403f3e3d3c3b3a393837363534333231302f2e2d2c2b2a292827262524232221201f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100"> : tensor<1x1x1x16xi8> -> tensor<1x1x1x16xi8>
    odc.yield %a, %b, %c : tensor<1x1x1x16xi8>, tensor<1x1x1x16xi8>, tensor<1x1x1x16xi8>
  }
}
// CHECK: %[[T:.*]] = npu.buffer "table" : !npu.buffer<table
// CHECK: npu.isa.table {{.*}} target %[[T]]
// CHECK-COUNT-2: npu.isa.vop {{.*}} table %[[T]] 
// CHECK: npu.isa.table
// CHECK: npu.isa.vop
