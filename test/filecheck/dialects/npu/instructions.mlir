// RUN: odc-opt %s | odc-opt | filecheck %s
// RUN: odc-opt %s --print-op-generic | odc-opt | filecheck %s

// Instructions, loops and steps read back as they were written, with each optional part present and absent.
%in = npu.buffer "in" at 0 : !npu.buffer<inputs, 64>
%new = npu.buffer "new" : !npu.buffer<arena, 64>
%c = npu.buffer "c" at 128 data <"0x0102"> : !npu.buffer<constants, 2>
%t = npu.memory : !npu.buffer<tile, 256>
%w = npu.memory : !npu.buffer<weight, 64>
npu.isa.load source %in target %t size0 8
npu.isa.load source %in + 4 target %t + 16 size0 8 waits [1] posts [2, 3]
npu.loop 3 {
  npu.isa.load source %in step 16 target %t + 64 step -32 size0 8
  npu.isa.conv init "zero" input %t weights %w output %t + 1 step 2
  npu.isa.sync "mac" waits [1]
}
npu.isa.halt
// CHECK: %[[IN:.*]] = npu.buffer "in" at 0 : !npu.buffer<inputs, 64>
// CHECK-NEXT: %{{.*}} = npu.buffer "new" : !npu.buffer<arena, 64>
// CHECK-NEXT: %{{.*}} = npu.buffer "c" at 128 data <"0x0102"> : !npu.buffer<constants, 2>
// CHECK-NEXT: %[[T:.*]] = npu.memory : !npu.buffer<tile, 256>
// CHECK-NEXT: %[[W:.*]] = npu.memory : !npu.buffer<weight, 64>
// CHECK-NEXT: npu.isa.load source %[[IN]] target %[[T]] size0 8
// CHECK-NEXT: npu.isa.load source %[[IN]] + 4 target %[[T]] + 16 size0 8 waits [1] posts [2, 3]
// CHECK-NEXT: npu.loop 3 {
// CHECK-NEXT: npu.isa.load source %[[IN]] step 16 target %[[T]] + 64 step -32 size0 8
// CHECK-NEXT: npu.isa.conv init "zero" input %[[T]] weights %[[W]] output %[[T]] + 1 step 2
// CHECK-NEXT: npu.isa.sync "mac" waits [1]
// CHECK-NEXT: }
// CHECK-NEXT: npu.isa.halt
