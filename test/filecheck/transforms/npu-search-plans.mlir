// RUN: odc-opt %s --split-input-file -p npu-search-plans | filecheck %s
// RUN: odc-opt %s --split-input-file -p npu-sched,npu-alloc --verify-each=run | filecheck %s --check-prefix=DONE

// The tensor in the middle does not fit beside the others: the fastest of the programs that fit is cut.
builtin.module attributes {odc.target = #odc.target<"npu-256", sram_limit = 58000>} {
  npu.program @segment_0(%x: tensor<1x64x64x8xi8>) -> tensor<1x32x32x8xi8> {
    %t = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x64x64x8xi8>
    %y = npu.pool max %t kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x32x32x8xi8>
    odc.yield %y : tensor<1x32x32x8xi8>
  }
}
// CHECK: npu.chains = array<i64: 0, 1,
// CHECK: %t = npu.pool max %x
// DONE: npu.program @segment_0
// DONE-NOT: npu.chains
// DONE: npu.isa.

// -----

// What fits needs no choice.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @segment_1(%x: tensor<1x64x64x8xi8>) -> tensor<1x32x32x8xi8> {
    %y = npu.pool max %x kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x32x32x8xi8>
    odc.yield %y : tensor<1x32x32x8xi8>
  }
}
// CHECK-LABEL: npu.program @segment_1
// CHECK-NOT: npu.chains
// CHECK: odc.yield

// -----

// A plan that is given is kept.
builtin.module attributes {odc.target = #odc.target<"npu-256", sram_limit = 58000>} {
  npu.program @segment_2(%x: tensor<1x64x64x8xi8>) -> tensor<1x32x32x8xi8> attributes {npu.chains = array<i64: 0, 1, 2>} {
    %t = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x64x64x8xi8>
    %y = npu.pool max %t kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x32x32x8xi8>
    odc.yield %y : tensor<1x32x32x8xi8>
  }
}
// CHECK: npu.chains = array<i64: 0, 1, 2>

// -----

// For the fewest cycles, programs for other machines are simulated as well: this one is faster with larger tiles.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram, prefer = "fewest-cycles">} {
  npu.program @segment_3(%x: tensor<1x32x32x16xi8>) -> tensor<1x16x16x16xi8> {
    %t = npu.pool max %x kernel [3, 3] pads [1, 1, 1, 1] clamp(-128, 127) : tensor<1x32x32x16xi8> -> tensor<1x32x32x16xi8>
    %u = npu.pool max %t kernel [3, 3] pads [1, 1, 1, 1] clamp(-128, 127) : tensor<1x32x32x16xi8> -> tensor<1x32x32x16xi8>
    %y = npu.pool max %u kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x32x32x16xi8> -> tensor<1x16x16x16xi8>
    odc.yield %y : tensor<1x16x16x16xi8>
  }
}
// CHECK-LABEL: npu.program @segment_3
// CHECK-SAME: attributes {npu.tiled_for = {sram = 50 : i64}}
// DONE-LABEL: npu.program @segment_3
// DONE-NOT: npu.tiled_for
// DONE: npu.isa.

// -----

// Of programs that are about equally fast, the one in less memory is preferred.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram, prefer = memory>} {
  npu.program @segment_4(%x: tensor<1x64x64x8xi8>) -> tensor<1x32x32x8xi8> {
    %t = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x64x64x8xi8>
    %y = npu.pool max %t kernel [3, 3] stride [2, 2] pads [1, 1, 0, 0] clamp(-128, 127) : tensor<1x64x64x8xi8> -> tensor<1x32x32x8xi8>
    odc.yield %y : tensor<1x32x32x8xi8>
  }
}
// CHECK-LABEL: npu.program @segment_4
// CHECK-SAME: npu.chains = array<i64: 0, 1,

// -----

// Of both kinds of addresses in local memories, the faster ones are chosen.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_5(%x: tensor<1x1x64x32x!quant.uniform<i8:f32, 0.5>>, %v: tensor<1x1x32x96x!quant.uniform<i8:f32, 0.5>>, %w: tensor<1x1x96x96x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x64x96x!quant.uniform<i8:f32, 0.5>> {
    %t = npu.matmul %x, %v scale <1073741824, -8> clamp(-128, 127) : tensor<1x1x64x32x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x32x96x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x64x96x!quant.uniform<i8:f32, 0.5>>
    %y = npu.matmul %t, %w scale <1073741824, -8> clamp(-128, 127) : tensor<1x1x64x96x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x96x96x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x64x96x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x1x64x96x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-LABEL: npu.program @segment_5
// CHECK-SAME: attributes {npu.timed = ["weight"]}
// DONE-LABEL: npu.program @segment_5
// DONE-NOT: npu.timed
// DONE: npu.isa.
