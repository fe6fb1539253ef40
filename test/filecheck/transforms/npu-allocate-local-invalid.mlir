// RUN: odc-opt %s --split-input-file -p npu-allocate-local --print-diagnostics | filecheck %s

// Slots beside a resident tensor that leaves too little room.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @slots(%x: tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>> {
    %in = npu.buffer "in" binds [0] : !npu.buffer<inputs, 64xi8>
    %r = npu.buffer "resident" : !npu.buffer<tile, 64xi8>
    npu.isa.load source %in target %r size0 64
    %a = npu.buffer "a" : !npu.buffer<tile, 19120xi8>
    npu.isa.load source %in target %a size0 32
    npu.isa.load source %in target %r size0 64
    npu.isa.halt
  }
}
// CHECK: slots need 19120 units of memory tile at a time, npu-256 has 19104 left

// -----

// A memory whose slots have no times.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @timed(%x: tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>> attributes {npu.timed = ["weight", "tile"]} {
    npu.isa.halt
  }
}
// CHECK: npu.timed is ["weight", "tile"] (pass npu-allocate-local); write ["weight"], ["param"] or ["weight", "param"]
