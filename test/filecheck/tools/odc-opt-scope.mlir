// RUN: odc-opt %s -p npu-insert-sync,dce --print-ir-before=npu-insert-sync --print-ir-after-all -o %t 2>&1 | filecheck %s
// RUN: odc-opt %s -p npu-insert-sync --print-ir-after-change -o %t 2>&1 | filecheck %s --check-prefix=CHANGE

// Passes that run on programs print the programs one by one.
// CHECK: IR before npu-insert-sync on npu.program @first:
// CHECK-NEXT: npu.program @first(
// CHECK-NOT: builtin.module
// CHECK-NOT: waits
// CHECK: IR before npu-insert-sync on npu.program @second:
// CHECK-NEXT: npu.program @second(
// CHECK: IR after npu-insert-sync on npu.program @first:
// CHECK-NEXT: npu.program @first(
// CHECK-NOT: builtin.module
// CHECK: npu.isa.store {{.*}} waits [6]
// CHECK: IR after npu-insert-sync on npu.program @second:
// CHECK-NOT: builtin.module
// CHECK: IR after dce:
// CHECK-NEXT: builtin.module attributes

// CHANGE: IR after npu-insert-sync on npu.program @first:
// CHANGE-NEXT: npu.program @first(
// CHANGE: IR after npu-insert-sync on npu.program @second: no change
// CHANGE-NOT: npu.program
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @first(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    %in = npu.buffer "in" at 0 : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" at 0 : !npu.buffer<outputs, 32xi8>
    %s = npu.buffer "slot" at 0 : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.store target %out source %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.halt
  }
  npu.program @second(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> attributes {npu.input_offsets = array<i64: 0>, npu.output_offsets = array<i64: 0>} {
    npu.isa.halt
  }
}
