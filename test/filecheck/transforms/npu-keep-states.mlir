// RUN: odc-opt %s --split-input-file --npu-keep-states | filecheck %s

// Both states are read and computed by the one segment; the application sees the second one's update as well.
builtin.module attributes {
  odc.target = #odc.target<"npu-256">,
  odc.states = [{output = 1 : i64, input = 0 : i64}, {output = 2 : i64, input = 2 : i64}]
} {
  func.func @main(%g: tensor<8xi8> loc("g"), %x: tensor<8xi8> loc("x"), %h: tensor<8xi8> loc("h")) -> (tensor<8xi8>, tensor<8xi8>, tensor<8xi8>) {
    %0, %1 = odc.segment @segment_0(%x, %h, %g) : (tensor<8xi8>, tensor<8xi8>, tensor<8xi8>) -> (tensor<8xi8>, tensor<8xi8>) for "npu-256" circle {
    ^bb0(%a: tensor<8xi8>, %b: tensor<8xi8>, %c: tensor<8xi8>):
      %2 = circle.maximum(%a, %b) : (tensor<8xi8>, tensor<8xi8>) -> tensor<8xi8> loc("h_out")
      %3 = circle.minimum(%a, %c) : (tensor<8xi8>, tensor<8xi8>) -> tensor<8xi8> loc("g_out")
      odc.yield %2, %3 : tensor<8xi8>, tensor<8xi8>
    } loc(fused["h_out", "g_out"])
    func.return %0, %1, %0 : tensor<8xi8>, tensor<8xi8>, tensor<8xi8>
  }
}
// CHECK: %[[H:.*]], %[[G:.*]], %[[STATE:.*]] = odc.segment @segment_0(%x, %h, %g)
// CHECK: %[[MAX:.*]] = circle.maximum
// CHECK: %[[MIN:.*]] = circle.minimum
// CHECK-NEXT: odc.yield %[[MAX]], %[[MIN]], %[[MAX]]
// CHECK-NEXT: } attributes {odc.kept_states = array<i64: 2, 1, 1, 2>}
// CHECK-NEXT: func.return %[[H]], %[[G]], %[[STATE]]

// -----

// The host reads the state as well.
builtin.module attributes {odc.target = #odc.target<"npu-256">, odc.states = [{output = 1 : i64, input = 0 : i64}]} {
  func.func @main(%h: tensor<8xi8> loc("h")) -> (tensor<8xi8>, tensor<8xi8>) {
    %0 = odc.segment @segment_0(%h) : (tensor<8xi8>) -> tensor<8xi8> for "npu-256" circle {
    ^bb0(%a: tensor<8xi8>):
      %1 = circle.relu(%a) : (tensor<8xi8>) -> tensor<8xi8> loc("h_out")
      odc.yield %1 : tensor<8xi8>
    } loc("h_out")
    %2 = circle.floor(%h) : (tensor<8xi8>) -> tensor<8xi8> loc("y")
    func.return %2, %0 : tensor<8xi8>, tensor<8xi8>
  }
}
// CHECK: odc.segment
// CHECK-NOT: odc.kept_states
// CHECK: func.return

// -----

// Two segments take turns with the SRAM.
builtin.module attributes {odc.target = #odc.target<"npu-256">, odc.states = [{output = 1 : i64, input = 0 : i64}]} {
  func.func @main(%h: tensor<8xi8> loc("h")) -> (tensor<8xi8>, tensor<8xi8>) {
    %0 = odc.segment @segment_0(%h) : (tensor<8xi8>) -> tensor<8xi8> for "npu-256" circle {
    ^bb0(%a: tensor<8xi8>):
      %1 = circle.relu(%a) : (tensor<8xi8>) -> tensor<8xi8> loc("h_out")
      odc.yield %1 : tensor<8xi8>
    } loc("h_out")
    %2 = circle.floor(%0) : (tensor<8xi8>) -> tensor<8xi8> loc("floor")
    %3 = odc.segment @segment_1(%2) : (tensor<8xi8>) -> tensor<8xi8> for "npu-256" circle {
    ^bb1(%b: tensor<8xi8>):
      %4 = circle.relu(%b) : (tensor<8xi8>) -> tensor<8xi8> loc("y")
      odc.yield %4 : tensor<8xi8>
    } loc("y")
    func.return %3, %0 : tensor<8xi8>, tensor<8xi8>
  }
}
// CHECK: odc.segment
// CHECK-NOT: odc.kept_states
// CHECK: func.return

// -----

// The second state has no room in half of the SRAM limit.
builtin.module attributes {
  odc.target = #odc.target<"npu-256", sram_limit = 16>,
  odc.states = [{output = 0 : i64, input = 1 : i64}, {output = 1 : i64, input = 0 : i64}]
} {
  func.func @main(%g: tensor<8xi8> loc("g"), %h: tensor<8xi8> loc("h")) -> (tensor<8xi8>, tensor<8xi8>) {
    %0, %1 = odc.segment @segment_0(%h, %g) : (tensor<8xi8>, tensor<8xi8>) -> (tensor<8xi8>, tensor<8xi8>) for "npu-256" circle {
    ^bb0(%b: tensor<8xi8>, %c: tensor<8xi8>):
      %2 = circle.relu(%b) : (tensor<8xi8>) -> tensor<8xi8> loc("h_out")
      %3 = circle.relu(%c) : (tensor<8xi8>) -> tensor<8xi8> loc("g_out")
      odc.yield %2, %3 : tensor<8xi8>, tensor<8xi8>
    } loc(fused["h_out", "g_out"])
    func.return %0, %1 : tensor<8xi8>, tensor<8xi8>
  }
}
// CHECK: odc.kept_states = array<i64: 0, 0>

// -----

// The variable is written in the segment, which gives the argument that holds it.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  func.func @main(%x: tensor<8xi8> loc("x")) -> tensor<8xi8> {
    %v = circle.variable : tensor<8xi8> loc("v")
    %0, %1 = odc.segment @segment_0(%x, %v) : (tensor<8xi8>, tensor<8xi8>) -> (tensor<8xi8>, tensor<8xi8>) for "npu-256" circle {
    ^bb0(%a: tensor<8xi8>, %b: tensor<8xi8>):
      %2 = circle.maximum(%a, %b) : (tensor<8xi8>, tensor<8xi8>) -> tensor<8xi8> loc("y")
      odc.yield %2, %b : tensor<8xi8>, tensor<8xi8>
    } loc(fused["y", "v"])
    func.return %0 : tensor<8xi8>
  }
}
// CHECK: odc.kept_states = array<i64: 1, 1>
