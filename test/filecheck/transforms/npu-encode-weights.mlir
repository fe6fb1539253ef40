// RUN: odc-opt %s --split-input-file -p npu-encode-weights | filecheck %s
// RUN: odc-opt %s --split-input-file -p "npu-encode-weights{codings=rice}" | filecheck %s --check-prefix RICE
// RUN: odc-opt %s --split-input-file -p npu-encode-weights,npu-encode-weights | filecheck %s

// A buffer is coded once for all that read it. What is read in part, or is shorter as it is, stays.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash>} {
  npu.program @segment_0() {
    %zeros = npu.buffer "zeros" data <"0x00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : !npu.buffer<constants, 64xi8>
    %part = npu.buffer "part" data <"0x00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : !npu.buffer<constants, 64xi8>
    %short = npu.buffer "short" data <"0x01"> : !npu.buffer<constants, 1xi8>
    %slot = npu.buffer "slot" at 0 : !npu.buffer<weight, 256xi8>
    npu.isa.wload source %zeros coded_bytes 64 target %slot bytes 64
    npu.isa.wload source %zeros coded_bytes 64 target %slot + 64 bytes 64
    npu.isa.wload source %part coded_bytes 32 target %slot bytes 32
    npu.isa.wload source %part + 32 coded_bytes 32 target %slot bytes 32
    npu.isa.wload source %short coded_bytes 1 target %slot bytes 1
    npu.isa.halt
  }
}
// CHECK-DAG: %[[ZEROS:.*]] = npu.buffer "zeros" data <"0x008900000080"> : !npu.buffer<constants, 6xi8>
// CHECK-DAG: npu.buffer "part" {{.*}} : !npu.buffer<constants, 64xi8>
// CHECK-DAG: npu.buffer "short" data <"0x01"> : !npu.buffer<constants, 1xi8>
// CHECK: npu.isa.wload source %[[ZEROS]] coded_bytes 6 coding "huffman" target %{{.*}} bytes 64
// CHECK: npu.isa.wload source %[[ZEROS]] coded_bytes 6 coding "huffman" target %{{.*}} + 64 bytes 64
// CHECK: npu.isa.wload source %{{.*}} coded_bytes 32 target
// CHECK: npu.isa.wload source %{{.*}} + 32 coded_bytes 32 target
// CHECK: npu.isa.wload source %{{.*}} coded_bytes 1 target
// RICE: npu.isa.wload source %{{.*}} coded_bytes 10 coding "rice" target
