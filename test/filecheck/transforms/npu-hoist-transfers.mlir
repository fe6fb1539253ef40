// RUN: odc-opt %s --split-input-file -p npu-hoist-transfers | filecheck %s

// The second load does not wait for the first tile's arithmetic, the third waits until its slot is free.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @loads(%x: tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>> {
    %in = npu.buffer "in" binds [0] : !npu.buffer<inputs, 64xi8>
    %a = npu.buffer "a" at 0 : !npu.buffer<tile, 16xi8>
    %o = npu.buffer "o" at 64 : !npu.buffer<tile, 16xi8>
    npu.isa.load source %in target %a size0 16
    npu.isa.vop kind "copy" a_type "i8" out_type "i8" size0 16 a %a a_stride0 1 output %o
    %b = npu.buffer "b" at 16 : !npu.buffer<tile, 16xi8>
    npu.isa.load source %in + 16 target %b size0 16
    npu.isa.vop kind "copy" a_type "i8" out_type "i8" size0 16 a %b a_stride0 1 output %o
    npu.isa.load source %in + 32 target %a size0 16
    npu.isa.halt
  }
}
// CHECK: %[[IN:.*]] = npu.buffer "in"
// CHECK-NEXT: %[[A:.*]] = npu.buffer "a"
// CHECK-NEXT: %[[B:.*]] = npu.buffer "b"
// CHECK-NEXT: %[[O:.*]] = npu.buffer "o"
// CHECK-NEXT: npu.isa.load source %[[IN]] target %[[A]]
// CHECK-NEXT: npu.isa.load source %[[IN]] + 16 target %[[B]]
// CHECK-NEXT: npu.isa.vop
// CHECK-NEXT: npu.isa.load source %[[IN]] + 32 target %[[A]]
// CHECK-NEXT: npu.isa.vop
// CHECK-NEXT: npu.isa.halt
