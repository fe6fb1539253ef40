// RUN: odc-opt %s --split-input-file -p npu-unroll-loops | filecheck %s
// RUN: odc-opt %s --split-input-file -p npu-unroll-loops,npu-roll-loops | filecheck %s --check-prefix=AGAIN

// Addresses advance by their steps, forwards and backwards; what has none stays, and so does what is outside.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 64xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 4 posts [1]
    npu.loop 3 {
      npu.isa.load source %in + 8 step 8 target %s + 32 step -16 size0 8
      npu.isa.sync "mac" waits [1] posts [2]
    }
    npu.isa.halt
  }
}
// CHECK: npu.isa.load source %[[IN:.*]] target %[[S:.*]] size0 4 posts [1]
// CHECK-NEXT: npu.isa.load source %[[IN]] + 8 target %[[S]] + 32 size0 8
// CHECK-NEXT: npu.isa.sync "mac" waits [1] posts [2]
// CHECK-NEXT: npu.isa.load source %[[IN]] + 16 target %[[S]] + 16 size0 8
// CHECK-NEXT: npu.isa.sync "mac" waits [1] posts [2]
// CHECK-NEXT: npu.isa.load source %[[IN]] + 24 target %[[S]] size0 8
// CHECK-NEXT: npu.isa.sync "mac" waits [1] posts [2]
// CHECK-NEXT: npu.isa.halt
// AGAIN: npu.loop 3 {
// AGAIN-NEXT: npu.isa.load source %[[IN:.*]] + 8 step 8 target %[[S:.*]] + 32 step -16 size0 8
// AGAIN-NEXT: npu.isa.sync "mac" waits [1] posts [2]
// AGAIN-NEXT: }
