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

// A tensor that a later layer reads keeps its bytes until then; slots lie around it, at the end if the next do not fit.
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
// CHECK: npu.buffer "b" at 19136 :
// CHECK: npu.buffer "c" at 0 :

// -----

// A slot avoids the bytes of the next layer's resident, because the fill of the resident would wait for its readers.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @filled(%x: tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>> {
    %in = npu.buffer "in" binds [0] : !npu.buffer<inputs, 64xi8>
    %out = npu.buffer "out" binds [0] : !npu.buffer<outputs, 64xi8>
    %a = npu.buffer "a" : !npu.buffer<tile, 32xi8>
    npu.isa.load source %in target %a size0 32
    %q = npu.buffer "q" : !npu.buffer<tile, 64xi8>
    %b = npu.buffer "b" : !npu.buffer<tile, 32xi8>
    npu.isa.fill target %q bytes 64
    npu.isa.load source %in target %b size0 32
    %c = npu.buffer "c" : !npu.buffer<tile, 32xi8>
    npu.isa.load source %in target %c size0 32
    npu.isa.store target %out source %q size0 64
    npu.isa.halt
  }
}
// CHECK-LABEL: @filled
// CHECK: npu.buffer "a" at 64 :
// CHECK: npu.buffer "q" at 0 :

// -----

// The next layer fills the memory: the one before it keeps to the end, so that its first slot can be filled early.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @next_fills(%x: tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>> {
    %out = npu.buffer "out" binds [0] : !npu.buffer<outputs, 64xi8>
    %copy = npu.buffer "copy" : !npu.buffer<arena, 8192xi8>
    %a = npu.buffer "a" : !npu.buffer<weight, 1024xi8>
    npu.isa.wload source %copy coded_bytes 1024 target %a bytes 1024
    %b = npu.buffer "b" : !npu.buffer<weight, 1024xi8>
    npu.isa.wload source %copy coded_bytes 1024 target %b bytes 1024
    %c = npu.buffer "c" : !npu.buffer<weight, 8192xi8>
    %d = npu.buffer "d" : !npu.buffer<weight, 8192xi8>
    npu.isa.wload source %copy coded_bytes 8192 target %c bytes 8192
    npu.isa.wload source %copy coded_bytes 8192 target %d bytes 8192
    npu.isa.halt
  }
}
// CHECK: npu.buffer "a" at 0 :
// CHECK: npu.buffer "b" at 15360 :
// CHECK: npu.buffer "c" at 0 :
// CHECK: npu.buffer "d" at 8192 :
