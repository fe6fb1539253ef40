// RUN: odc-opt %s | odc-opt | filecheck %s
// RUN: odc-opt %s --print-op-generic | odc-opt | filecheck %s

// Instructions, loops and steps read back as they were written, with each optional part present and absent.
%in = npu.buffer "in" at 0 : !npu.buffer<inputs, 64xi8>
%new = npu.buffer "new" : !npu.buffer<arena, 64xi8>
%c = npu.buffer "c" at 128 data <"0x0102"> : !npu.buffer<constants, 2xi8>
%t = npu.memory : !npu.buffer<tile, 256xi8>
%w = npu.memory : !npu.buffer<weight, 64xi8>
%tile = npu.buffer "tile" : !npu.buffer<tile, 4x56x64xui8>
%sums = npu.buffer "sums" : !npu.buffer<accumulator, 512xi40>
%records = npu.buffer "records" : !npu.buffer<param, 64x!npu.record>
%lent = npu.buffer "lent" binds [0, 2] : !npu.buffer<inputs, 1x8xi8>
%kept = npu.buffer "kept" live [2, 7] : !npu.buffer<arena, 8xi8>
npu.isa.load source %in target %t size0 8
npu.isa.load source %in + 4 target %t + 16 size0 8 waits [1] posts [2, 3]
npu.loop 3 {
  npu.isa.load source %in step 16 target %t + 64 step -32 size0 8
  npu.isa.conv init "zero" input %t weights %w output %t + 1 step 2
  npu.isa.sync "mac" waits [1]
}
npu.isa.halt
// CHECK: %[[IN:.*]] = npu.buffer "in" at 0 : !npu.buffer<inputs, 64xi8>
// CHECK-NEXT: %{{.*}} = npu.buffer "new" : !npu.buffer<arena, 64xi8>
// CHECK-NEXT: %{{.*}} = npu.buffer "c" at 128 data <"0x0102"> : !npu.buffer<constants, 2xi8>
// CHECK-NEXT: %[[T:.*]] = npu.memory : !npu.buffer<tile, 256xi8>
// CHECK-NEXT: %[[W:.*]] = npu.memory : !npu.buffer<weight, 64xi8>
// CHECK-NEXT: %{{.*}} = npu.buffer "tile" : !npu.buffer<tile, 4x56x64xui8>
// CHECK-NEXT: %{{.*}} = npu.buffer "sums" : !npu.buffer<accumulator, 512xi40>
// CHECK-NEXT: %{{.*}} = npu.buffer "records" : !npu.buffer<param, 64x!npu.record>
// CHECK-NEXT: %{{.*}} = npu.buffer "lent" binds [0, 2] : !npu.buffer<inputs, 1x8xi8>
// CHECK-NEXT: %{{.*}} = npu.buffer "kept" live [2, 7] : !npu.buffer<arena, 8xi8>
// CHECK-NEXT: npu.isa.load source %[[IN]] target %[[T]] size0 8
// CHECK-NEXT: npu.isa.load source %[[IN]] + 4 target %[[T]] + 16 size0 8 waits [1] posts [2, 3]
// CHECK-NEXT: npu.loop 3 {
// CHECK-NEXT: npu.isa.load source %[[IN]] step 16 target %[[T]] + 64 step -32 size0 8
// CHECK-NEXT: npu.isa.conv init "zero" input %[[T]] weights %[[W]] output %[[T]] + 1 step 2
// CHECK-NEXT: npu.isa.sync "mac" waits [1]
// CHECK-NEXT: }
// CHECK-NEXT: npu.isa.halt
