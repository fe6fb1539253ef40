// RUN: odc-opt %s --split-input-file -p npu-choose-tiles,npu-lower-to-tiles,npu-allocate-local,npu-hoist-transfers,npu-prefetch-constants | filecheck %s

// Off-chip constants are copied to SRAM as one chunk and read from there.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv %x kernel [1, 1] weights <"0x01020304"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-DAG: %[[C:.*]] = npu.buffer "weights" data <{{.*}}> : !npu.buffer<constants, 17xi8>
// CHECK-DAG: %[[S:.*]] = npu.buffer "prefetched" live [0, 4] : !npu.buffer<arena, 17xi8>
// CHECK: npu.isa.copy source %[[C]] target %[[S]] bytes 17
// CHECK: npu.isa.wload source %[[S]] coded
// CHECK: npu.isa.param source %[[S]] + 4 target

// -----

// Constants that are in SRAM already are left alone.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv %x kernel [1, 1] weights <"0x01020304"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-NOT: npu.isa.copy
// CHECK-NOT: prefetched

// -----

// Where memory counts more than cycles, constants never make the arena larger: here no tensor leaves them room.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash, prefer = memory>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv %x kernel [1, 1] weights <"0x01020304"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-NOT: npu.isa.copy
// CHECK: npu.isa.wload source %{{.*}} coded

// -----

// Of a table with few rows read only those come from off-chip memory.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash>} {
  npu.program @segment_0(%i: tensor<1x1xi32>) -> tensor<1x1x1x64x!quant.uniform<i8:f32, 0.5>> {
    %t = npu.constant <"0x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<1x1x3x64x!quant.uniform<i8:f32, 0.5>>
    %y = npu.gather %t[%i] : tensor<1x1x3x64x!quant.uniform<i8:f32, 0.5>>, tensor<1x1xi32> -> tensor<1x1x1x64x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x1x1x64x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-NOT: npu.isa.copy
// CHECK: %[[T:.*]] = npu.buffer {{.*}} !npu.buffer<constants, 1x1x3x64xi8>
// CHECK: npu.isa.gather source %[[T]] indices

// -----

// Where as many bytes would come, the table is copied as a whole.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash>} {
  npu.program @segment_0(%i: tensor<1x2xi32>) -> tensor<1x1x2x64x!quant.uniform<i8:f32, 0.5>> {
    %t = npu.constant <"0x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<1x1x3x64x!quant.uniform<i8:f32, 0.5>>
    %y = npu.gather %t[%i] : tensor<1x1x3x64x!quant.uniform<i8:f32, 0.5>>, tensor<1x2xi32> -> tensor<1x1x2x64x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x1x2x64x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: npu.isa.copy source {{.*}} bytes 192
// CHECK: npu.isa.gather source %{{.*}} indices
