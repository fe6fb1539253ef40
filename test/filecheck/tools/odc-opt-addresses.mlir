// RUN: not odc-opt %s -p npu-alloc 2>&1 | filecheck %s --check-prefix=GIVEN
// RUN: not odc-opt %s -p package 2>&1 | filecheck %s --check-prefix=STAGE
// RUN: not odc-opt %s -t npu-listing 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not odc-opt %s --npu-insert-sync 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not odc-opt %s --npu-verify-memory 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not odc-opt %s --npu-roll-loops 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not odc-opt %s --npu-allocate-memory 2>&1 | filecheck %s --check-prefix=MOVED

// Addresses that are written by hand are neither dropped nor made up.
// GIVEN: error: buffer 'slot' of 'conv' in memory tile has the address 64 already (stage npu-alloc, pass npu-allocate-local, op npu.buffer); remove the address, or run only the passes after npu-allocate-local
// STAGE: error: illegal at the end of stage package: npu.buffer buffer 'out' has no address
// STAGE-SAME: ; stage npu-alloc gives addresses to IR of stage npu-sched (-p npu-alloc); by hand, write `at N`
// MISSING: error: buffer 'out' of 'conv' in memory outputs has no address
// MISSING-SAME: ; stage npu-alloc gives addresses to IR of stage npu-sched (-p npu-alloc); by hand, write `at N`
// MOVED: error: buffer 'in' in memory inputs has the address 128, assigned is 0 (pass npu-allocate-memory, op npu.buffer); remove the address
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %in = npu.buffer "in" at 128 binds [0] : !npu.buffer<inputs, 32xi8>
    %out = npu.buffer "out" binds [0] : !npu.buffer<outputs, 32xi8> loc("conv")
    %s = npu.buffer "slot" at 64 : !npu.buffer<tile, 32xi8> loc("conv")
    npu.isa.load source %in target %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.store target %out source %s size0 32 tile_stride1 32 tile_stride2 32
    npu.isa.halt
  }
}
