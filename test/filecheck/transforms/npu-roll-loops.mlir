// RUN: odc-opt %s --split-input-file -p npu-roll-loops | filecheck %s

// Equal instructions whose addresses advance by constant steps: within their buffers, they keep them.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 8
    npu.isa.load source %in + 8 target %s size0 8
    npu.isa.load source %in + 16 target %s size0 8
    npu.isa.load source %in + 24 target %s size0 8
    npu.isa.halt
  }
}
// CHECK: %[[IN:.*]] = npu.buffer "in"
// CHECK: %[[S:.*]] = npu.buffer "slot"
// CHECK: npu.loop 4 {
// CHECK-NEXT: npu.isa.load source %[[IN]] step 8 target %[[S]] size0 8
// CHECK-NEXT: }
// CHECK-NEXT: npu.isa.halt

// -----

// From buffer to buffer: the instruction names the memory, and slots that nothing names any more go.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %s0 = npu.buffer "slot" at 64 : !npu.buffer<tile, 32xi8>
    %s1 = npu.buffer "slot" at 96 : !npu.buffer<tile, 32xi8>
    %s2 = npu.buffer "slot" at 128 : !npu.buffer<tile, 32xi8>
    %s3 = npu.buffer "slot" at 160 : !npu.buffer<tile, 32xi8>
    npu.isa.load source %in + 4 target %s0 + 8 size0 8
    npu.isa.load source %in + 4 target %s1 + 8 size0 8
    npu.isa.load source %in + 4 target %s2 + 8 size0 8
    npu.isa.load source %in + 4 target %s3 + 8 size0 8
    npu.isa.halt
  }
}
// CHECK: %[[M:.*]] = npu.memory : !npu.buffer<tile, 192xi8>
// CHECK-NOT: "slot"
// CHECK: npu.loop 4 {
// CHECK-NEXT: npu.isa.load source %{{.*}} + 4 target %[[M]] + 72 step 32 size0

// -----

// Left alone because the tokens differ, the memories differ, or a loop would not be shorter.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %t = npu.buffer "tensor" at 0 : !npu.buffer<arena, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 8 waits [1]
    npu.isa.load source %in + 8 target %s size0 8 waits [2]
    npu.isa.load source %in + 16 target %s size0 8 waits [3]
    npu.isa.load source %t target %s size0 8 waits [3]
    npu.isa.halt
  }
}
// CHECK-NOT: npu.loop
// CHECK-NOT: npu.memory

// -----

// A loop holds instructions of one layer and of what is computed with its tiles, not those of two layers.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @together(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.fused = {add = "conv"}, npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 8 loc("conv")
    npu.isa.load source %in target %s size0 4 loc("add")
    npu.isa.load source %in + 8 target %s size0 8 loc("conv")
    npu.isa.load source %in + 8 target %s size0 4 loc("add")
    npu.isa.load source %in + 16 target %s size0 8 loc("conv")
    npu.isa.load source %in + 16 target %s size0 4 loc("add")
    npu.isa.load source %in + 24 target %s size0 8 loc("conv")
    npu.isa.load source %in + 24 target %s size0 4 loc("add")
    npu.isa.halt
  }
  npu.program @apart(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 8 loc("conv")
    npu.isa.load source %in target %s size0 4 loc("add")
    npu.isa.load source %in + 8 target %s size0 8 loc("conv")
    npu.isa.load source %in + 8 target %s size0 4 loc("add")
    npu.isa.load source %in + 16 target %s size0 8 loc("conv")
    npu.isa.load source %in + 16 target %s size0 4 loc("add")
    npu.isa.load source %in + 24 target %s size0 8 loc("conv")
    npu.isa.load source %in + 24 target %s size0 4 loc("add")
    npu.isa.halt
  }
}
// CHECK-LABEL: npu.program @together(
// CHECK: npu.loop 4 {
// CHECK-NEXT: npu.isa.load {{.*}} size0 8{{.*}} loc("conv")
// CHECK-NEXT: npu.isa.load {{.*}} size0 4{{.*}} loc("add")
// CHECK-LABEL: npu.program @apart(
// CHECK-NOT: npu.loop
