// RUN: odc-opt %s --split-input-file -p npu-lower-to-tiles,npu-share-arena | filecheck %s

// The next state is computed where the last one was, after all that reads it; the host reads it there, too.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4xi8> loc("x"), %h: tensor<1x4xi8> loc("h")) -> (tensor<1x4xi8>, tensor<1x4xi8>) attributes {odc.kept_states = array<i64: 1, 1>} {
    %0 = npu.elementwise max %x, %h clamp(-128, 127) : tensor<1x4xi8>, tensor<1x4xi8> -> tensor<1x4xi8> loc("first")
    %1 = npu.elementwise min %x, %0 clamp(-128, 127) : tensor<1x4xi8>, tensor<1x4xi8> -> tensor<1x4xi8> loc("second")
    odc.yield %1, %1 : tensor<1x4xi8>, tensor<1x4xi8>
  } loc(fused["y", "next"])
}
// CHECK: %[[H:.*]] = npu.buffer "h" takes [1] gives [1, 0] : !npu.buffer<arena, 1x4xi8>
// CHECK: npu.isa.load source %[[H]]
// CHECK: npu.isa.store target %[[H]]
// CHECK-NOT: npu.isa.copy

// -----

// The layer that computes the next state loads the last one first.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4xi8> loc("x"), %h: tensor<1x4xi8> loc("h")) -> tensor<1x4xi8> attributes {odc.kept_states = array<i64: 1, 0>} {
    %0 = npu.elementwise max %x, %h clamp(-128, 127) : tensor<1x4xi8>, tensor<1x4xi8> -> tensor<1x4xi8> loc("next")
    odc.yield %0 : tensor<1x4xi8>
  } loc("next")
}
// CHECK: %[[H:.*]] = npu.buffer "h" takes [1] gives [0] : !npu.buffer<arena, 1x4xi8>
// CHECK: npu.isa.load source %[[H]]
// CHECK: npu.isa.store target %[[H]]
// CHECK-NEXT: npu.isa.halt

// -----

// Something reads the last state when the next one is known: it is copied at the end.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4xi8> loc("x"), %h: tensor<1x4xi8> loc("h")) -> (tensor<1x4xi8>, tensor<1x4xi8>) attributes {odc.kept_states = array<i64: 1, 0>} {
    %0 = npu.elementwise max %x, %x clamp(-128, 127) : tensor<1x4xi8>, tensor<1x4xi8> -> tensor<1x4xi8> loc("next")
    %1 = npu.elementwise min %0, %h clamp(-128, 127) : tensor<1x4xi8>, tensor<1x4xi8> -> tensor<1x4xi8> loc("y")
    odc.yield %0, %1 : tensor<1x4xi8>, tensor<1x4xi8>
  } loc(fused["next", "y"])
}
// CHECK-DAG: %[[H:.*]] = npu.buffer "h" takes [1] gives [0] : !npu.buffer<arena, 1x4xi8>
// CHECK-DAG: %[[NEXT:.*]] = npu.buffer "next" : !npu.buffer<arena, 1x4xi8>
// CHECK: npu.isa.store target %[[NEXT]]
// CHECK: npu.isa.copy source %[[NEXT]] target %[[H]] bytes 4
// CHECK-NEXT: npu.isa.halt

// -----

// One state takes the old value of another one, which is copied before that one is replaced.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%g: tensor<1x4xi8> loc("g"), %h: tensor<1x4xi8> loc("h")) -> (tensor<1x4xi8>, tensor<1x4xi8>) attributes {odc.kept_states = array<i64: 0, 0, 1, 1>} {
    %0 = npu.elementwise max %g, %h clamp(-128, 127) : tensor<1x4xi8>, tensor<1x4xi8> -> tensor<1x4xi8> loc("next")
    odc.yield %h, %0 : tensor<1x4xi8>, tensor<1x4xi8>
  } loc(fused["h", "next"])
}
// CHECK-DAG: %[[G:.*]] = npu.buffer "g" takes [0] gives [0]
// CHECK-DAG: %[[H:.*]] = npu.buffer "h" takes [1] gives [1]
// CHECK: npu.isa.copy source %[[H]] target %[[G]] bytes 4
// CHECK-NEXT: npu.isa.copy source %{{.*}} target %[[H]] bytes 4
// CHECK-NEXT: npu.isa.halt

// -----

// The next state is an input: it is copied, and the state is not read as the input.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4xi8> loc("x"), %h: tensor<1x4xi8> loc("h")) -> (tensor<1x4xi8>, tensor<1x4xi8>) attributes {odc.kept_states = array<i64: 1, 1>} {
    %0 = npu.elementwise max %x, %h clamp(-128, 127) : tensor<1x4xi8>, tensor<1x4xi8> -> tensor<1x4xi8> loc("y")
    odc.yield %0, %x : tensor<1x4xi8>, tensor<1x4xi8>
  } loc(fused["y", "next"])
}
// CHECK-DAG: %[[X:.*]] = npu.buffer "x" takes [0] : !npu.buffer<arena, 1x4xi8>
// CHECK-DAG: %[[H:.*]] = npu.buffer "h" takes [1] gives [1] : !npu.buffer<arena, 1x4xi8>
// CHECK: npu.isa.load source %[[X]]
// CHECK: npu.isa.load source %[[H]]
// CHECK: npu.isa.copy source %[[X]] target %[[H]] bytes 4
// CHECK-NEXT: npu.isa.halt

// -----

// The next state is a constant: it is copied in every run.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4xi8> loc("x"), %h: tensor<1x4xi8> loc("h")) -> (tensor<1x4xi8>, tensor<1x4xi8>) attributes {odc.kept_states = array<i64: 1, 1>} {
    %0 = npu.elementwise max %x, %h clamp(-128, 127) : tensor<1x4xi8>, tensor<1x4xi8> -> tensor<1x4xi8> loc("y")
    %1 = npu.constant <"0x01020304"> : tensor<1x4xi8>
    odc.yield %0, %1 : tensor<1x4xi8>, tensor<1x4xi8>
  } loc(fused["y", "next"])
}
// CHECK-DAG: %[[C:.*]] = npu.buffer "{{.*}}" {{.*}}: !npu.buffer<constants, 1x4xi8>
// CHECK-DAG: %[[H:.*]] = npu.buffer "h" takes [1] gives [1] : !npu.buffer<arena, 1x4xi8>
// CHECK: npu.isa.copy source %[[C]] target %[[H]] bytes 4
// CHECK-NEXT: npu.isa.halt

// -----

// Two states swap: one old value is copied aside before the states are replaced.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%g: tensor<1x4xi8> loc("g"), %h: tensor<1x4xi8> loc("h")) -> (tensor<1x4xi8>, tensor<1x4xi8>) attributes {odc.kept_states = array<i64: 0, 0, 1, 1>} {
    odc.yield %h, %g : tensor<1x4xi8>, tensor<1x4xi8>
  } loc(fused["h", "next"])
}
// CHECK-DAG: %[[G:.*]] = npu.buffer "g" takes [0] gives [0]
// CHECK-DAG: %[[H:.*]] = npu.buffer "h" takes [1] gives [1]
// CHECK: npu.isa.copy source %[[H]] target %[[ASIDE:.*]] bytes 4
// CHECK-NEXT: npu.isa.copy source %[[G]] target %[[H]] bytes 4
// CHECK-NEXT: npu.isa.copy source %[[ASIDE]] target %[[G]] bytes 4
// CHECK-NEXT: npu.isa.halt

// -----

// The tensor that begins the next state is read after a row was replaced: both keep their places.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @segment_0(%x: tensor<1x4x4xi8> loc("x"), %h: tensor<1x4x4xi8> loc("h"), %r: tensor<1x1x4xi8> loc("r"), %p: tensor<1xi32> loc("p")) -> (tensor<1x4x4xi8>, tensor<1x4x4xi8>) attributes {odc.kept_states = array<i64: 1, 0>} {
    %0 = npu.elementwise max %x, %h clamp(-128, 127) : tensor<1x4x4xi8>, tensor<1x4x4xi8> -> tensor<1x4x4xi8> loc("big")
    %1 = npu.update %0 at %p[0] to %r : tensor<1x4x4xi8>, tensor<1x1x4xi8>, tensor<1xi32> -> tensor<1x4x4xi8> loc("next")
    %2 = npu.elementwise min %0, %x clamp(-128, 127) : tensor<1x4x4xi8>, tensor<1x4x4xi8> -> tensor<1x4x4xi8> loc("y")
    odc.yield %1, %2 : tensor<1x4x4xi8>, tensor<1x4x4xi8>
  } loc(fused["next", "y"])
}
// CHECK-DAG: %[[H:.*]] = npu.buffer "h" takes [1] gives [0]
// CHECK-DAG: %[[BIG:.*]] = npu.buffer "big" : !npu.buffer<arena
// CHECK: npu.isa.copy source %[[BIG]] target %[[H]] bytes 16
// CHECK-NEXT: npu.isa.scatter {{.*}} target %[[H]]
// CHECK: npu.isa.load source %[[BIG]]
