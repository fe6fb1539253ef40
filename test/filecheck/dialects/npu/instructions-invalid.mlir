// RUN: odc-opt %s --split-input-file --print-diagnostics | filecheck %s

// A step needs a loop.
%t = npu.memory : !npu.buffer<tile, 256xi8>
npu.isa.fill target %t step 8 bytes 8
// CHECK: npu.isa.fill has steps but is in no npu.loop

// -----

// No iteration leaves the buffer, forwards or backwards.
%t = npu.memory : !npu.buffer<tile, 32xi8>
npu.loop 5 {
  npu.isa.fill target %t step 8 bytes 8
}
// CHECK: npu.isa.fill: target is 32 into a buffer of 32 units

// -----

%t = npu.memory : !npu.buffer<tile, 32xi8>
npu.loop 2 {
  npu.isa.fill target %t + 4 step -8 bytes 8
}
// CHECK: npu.isa.fill: target is -4 into a buffer of 32 units

// -----

// A loop runs at least once, and as often as its instruction can say.
%t = npu.memory : !npu.buffer<tile, 32xi8>
npu.loop 0 {
  npu.isa.fill target %t bytes 8
}
// CHECK: npu.loop runs 0 times, allowed: 1 to 65535

// -----

// Its body holds instructions, none of them a halt or a loop.
npu.loop 2 {
^bb0:
}
// CHECK: npu.loop has an empty body

// -----

npu.loop 2 {
  npu.isa.halt
}
// CHECK: npu.loop holds npu.isa.halt, allowed: instructions other than halt

// -----

npu.loop 2 {
  npu.loop 2 {
    npu.isa.sync "mac"
  }
}
// CHECK: npu.loop holds npu.loop, allowed: instructions other than halt

// -----

// Buffers stand above their users, which take the type from there.
npu.isa.fill target %t bytes 8
%t = npu.memory : !npu.buffer<tile, 32xi8>
// CHECK: a buffer is used before it is defined

// -----

// What only some memories have.
%t = npu.buffer "slot" binds [0] : !npu.buffer<tile, 32xi8>
// CHECK: npu.buffer in tile cannot hold an input or output of the program

// -----

%t = npu.buffer "slot" live [0, 1] : !npu.buffer<tile, 32xi8>
// CHECK: npu.buffer in tile takes no time to live

// -----

%t = npu.buffer "tensor" live [2, 1] : !npu.buffer<arena, 32xi8>
// CHECK: npu.buffer: live is [2, 1], expected a first and a last instruction

// -----

%t = npu.buffer "tensor" at 0 live [1, 2] : !npu.buffer<arena, 32xi8>
// CHECK: npu.buffer has an address, and takes no time to live

// -----

// Memories have names, and elements of their own.
%t = npu.memory : !npu.buffer<bananas, 32xi8>
// CHECK: there is no memory 'bananas', allowed: constants, arena, inputs, outputs, tile, weight

// -----

%t = npu.memory : !npu.buffer<tile, 32xi40>
// CHECK: elements in memory tile are ui8, i8, i16, i32, not i40

// -----

%t = npu.memory : !npu.buffer<accumulator, 32xi8>
// CHECK: elements in memory accumulator are i40, not i8

// -----

%t = npu.memory : !npu.buffer<param, 32xi8>
// CHECK: elements in memory param are !npu.record, not i8

// -----

%t = npu.memory : !npu.buffer<tile, ?x4xi8>
// CHECK: the shape of a buffer has dimensions, all of known size
