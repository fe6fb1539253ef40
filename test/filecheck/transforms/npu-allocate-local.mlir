// RUN: odc-opt %s --split-input-file -p npu-allocate-local | filecheck %s

// Slots of a layer lie side by side; those of the next layer take the room beside them; unused ones go.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @slots(%x: tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>> {
    %in = npu.buffer "in" binds [0] : !npu.buffer<inputs, 64xi8>
    %out = npu.buffer "out" binds [0] : !npu.buffer<outputs, 64xi8>
    %a = npu.buffer "a" : !npu.buffer<tile, 50xi8>
    %b = npu.buffer "b" : !npu.buffer<tile, 64xi8>
    %unused = npu.buffer "unused" : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %a size0 50
    npu.isa.load source %in target %b size0 50
    %c = npu.buffer "c" : !npu.buffer<tile, 64xi8>
    npu.isa.store target %out source %c size0 64
    npu.isa.halt
  }
}
// CHECK: npu.buffer "in" binds [0] :
// CHECK: npu.buffer "a" at 0 : !npu.buffer<tile, 50xi8>
// CHECK: npu.buffer "b" at 64 :
// CHECK-NOT: "unused"
// CHECK: npu.buffer "c" at 192 :

// -----

// A tensor that a later layer reads keeps its bytes until then; slots lie around it.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @resident(%x: tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>> {
    %in = npu.buffer "in" binds [0] : !npu.buffer<inputs, 64xi8>
    %out = npu.buffer "out" binds [0] : !npu.buffer<outputs, 64xi8>
    %r = npu.buffer "resident" : !npu.buffer<tile, 64xi8>
    %a = npu.buffer "a" : !npu.buffer<tile, 32xi8>
    npu.isa.load source %in target %r size0 64
    npu.isa.load source %in target %a size0 32
    %b = npu.buffer "b" : !npu.buffer<tile, 32xi8>
    npu.isa.load source %in target %b size0 32
    npu.isa.store target %out source %r size0 64
    %c = npu.buffer "c" : !npu.buffer<tile, 19168xi8>
    npu.isa.store target %out source %c size0 64
    npu.isa.halt
  }
}
// CHECK: npu.buffer "resident" at 0 :
// CHECK: npu.buffer "a" at 64 :
// CHECK: npu.buffer "b" at 96 :
// CHECK: npu.buffer "c" at 0 :
