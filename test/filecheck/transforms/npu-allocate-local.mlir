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

// -----

// Two slots are used in turn. The next layer takes the bytes of the slot that was read first, because the other slot was
// filled since then. Its own slots come in the opposite order, so that neither waits for the layer.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @timed(%x: tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>> attributes {npu.timed = ["weight"]} {
    %out = npu.buffer "out" binds [0] : !npu.buffer<outputs, 64xi8>
    %copy = npu.buffer "copy" : !npu.buffer<arena, 8192xi8>
    %in = npu.buffer "in" : !npu.buffer<tile, 128xi8>
    %sums = npu.buffer "sums" : !npu.buffer<accumulator, 64xi40>
    %a = npu.buffer "a" : !npu.buffer<weight, 8192xi8>
    %b = npu.buffer "b" : !npu.buffer<weight, 8192xi8>
    npu.isa.wload source %copy coded_bytes 8192 target %a bytes 8192
    npu.isa.conv init "zero" input %in in_channels 128 channels 64 weights %a accumulators %sums
    npu.isa.wload source %copy coded_bytes 8192 target %b bytes 8192
    npu.isa.conv init "zero" input %in in_channels 128 channels 64 weights %b accumulators %sums
    %c = npu.buffer "c" : !npu.buffer<weight, 1024xi8>
    npu.isa.wload source %copy coded_bytes 1024 target %c bytes 1024
    npu.isa.conv init "zero" input %in in_channels 16 channels 64 weights %c accumulators %sums
    %d = npu.buffer "d" : !npu.buffer<weight, 8192xi8>
    %e = npu.buffer "e" : !npu.buffer<weight, 8192xi8>
    npu.isa.wload source %copy coded_bytes 8192 target %d bytes 8192
    npu.isa.wload source %copy coded_bytes 8192 target %e bytes 8192
    npu.isa.halt
  }
}
// CHECK-LABEL: @timed
// CHECK-NOT: npu.timed
// CHECK: npu.buffer "a" at 0 :
// CHECK: npu.buffer "b" at 8192 :
// CHECK: npu.buffer "c" at 0 :
// CHECK: npu.buffer "d" at 8192 :
// CHECK: npu.buffer "e" at 0 :
