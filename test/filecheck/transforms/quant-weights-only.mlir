// RUN: odc-opt %s --split-input-file --quant-weights-only | filecheck %s
// RUN: odc-opt %s --split-input-file --quant-weights-only='dtype=int4 form=direct' | filecheck %s --check-prefix DIRECT

// Weights become codes with a scale for each result channel, and real numbers again in front of the operator.
func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32> loc("w")
  %b = circle.const [1.0, -1.0] : tensor<2xf32>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  func.return %0 : tensor<1x2xf32>
}
// CHECK: %[[W:.*]] = circle.const [127, -64, 16, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.015748031, 0.031496063}>> loc("w")
// CHECK-NEXT: %[[R:.*]] = circle.dequantize(%[[W]]) : {{.*}} -> tensor<2x2xf32> loc("w_dequantized")
// CHECK-NEXT: %[[B:.*]] = circle.const [1.0, -1.0] : tensor<2xf32>
// CHECK-NEXT: circle.fully_connected(%{{.*}}, %[[R]], %[[B]])
// DIRECT: %[[W:.*]] = circle.const #circle.blob<"0xd771"> : tensor<2x2x!quant.uniform<i4:f32:0, {0.2857143, 0.5714286}>> loc("w")
// DIRECT: circle.fully_connected(%{{.*}}, %[[W]],

// -----

// Two operators share their weights; a third one that only adds them keeps the real numbers.
func.func @main(%x: tensor<1x2xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<2x2xf32>) {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32> loc("w")
  %0 = circle.fully_connected(%x, %w) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  %1 = circle.fully_connected(%0, %w) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  %2 = circle.add(%w, %w) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %0, %1, %2 : tensor<1x2xf32>, tensor<1x2xf32>, tensor<2x2xf32>
}
// CHECK: %[[W:.*]] = circle.const {{.*}} loc("w_quantized")
// CHECK-NEXT: %[[R:.*]] = circle.dequantize(%[[W]])
// CHECK-NEXT: %[[F:.*]] = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32> loc("w")
// CHECK-NEXT: circle.fully_connected(%{{.*}}, %[[R]])
// CHECK-NEXT: circle.fully_connected(%{{.*}}, %[[R]])
// CHECK-NEXT: circle.add(%[[F]], %[[F]])

// -----

// The same weights by different channels are different codes.
func.func @main(%x: tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32> {
  %w = circle.const [2.0, -1.0] : tensor<1x1x1x2xf32> loc("w")
  %0 = circle.depthwise_conv_2d(%x, %w) {padding = same, stride = [1, 1], depth_multiplier = 1} : (tensor<1x2x2x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x2x2x2xf32>
  %1 = circle.conv_2d(%0, %w) {padding = same, stride = [1, 1]} : (tensor<1x2x2x2xf32>, tensor<1x1x1x2xf32>) -> tensor<1x2x2x1xf32>
  %2 = circle.add(%0, %1) : (tensor<1x2x2x2xf32>, tensor<1x2x2x1xf32>) -> tensor<1x2x2x2xf32>
  func.return %2 : tensor<1x2x2x2xf32>
}
// CHECK: circle.const [127, -127] : tensor<1x1x1x2x!quant.uniform<i8:f32:3, {0.015748031, 0.007874016}>> loc("w")
// CHECK: circle.const [127, -64] : tensor<1x1x1x2x!quant.uniform<i8:f32, 0.015748031>> loc("w_quantized")

// -----

// Left alone: other operators, computed weights, codes, infinities.
func.func @main(%x: tensor<1x2xf32>, %y: tensor<2x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32>
  %inf = circle.const #circle.blob<"0x000000400000807f0000003f00008040"> : tensor<2x2xf32>
  %c = circle.const [2, -1, 5, 4] : tensor<2x2x!quant.uniform<i8:f32, 0.5>>
  %0 = circle.batch_matmul(%x, %w) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  %1 = circle.fully_connected(%0, %y) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  %2 = circle.fully_connected(%1, %c) : (tensor<1x2xf32>, tensor<2x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x2xf32>
  %3 = circle.fully_connected(%2, %inf) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  func.return %3 : tensor<1x2xf32>
}
// CHECK: circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32>
// CHECK: circle.batch_matmul
// CHECK-NEXT: circle.fully_connected
// CHECK-NEXT: circle.fully_connected
// CHECK-NEXT: circle.fully_connected(%{{.*}}, %{{.*}}) : (tensor<1x2xf32>, tensor<2x2xf32>)

// -----

// Rows of a table: codes are looked up, with a scale for each row, and a layer that has the same weights shares them.
func.func @main(%ids: tensor<1x2xi64>) -> tensor<1x2x16xf32> {
  %t = circle.const #circle.blob<"0x0000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000080410000803f0000004000004040000080400000a0400000c0400000e040000000410000104100002041000030410000404100005041000060410000704100008041"> : tensor<16x16xf32> loc("t")
  %0 = circle.gather(%t, %ids) {axis = 0} : (tensor<16x16xf32>, tensor<1x2xi64>) -> tensor<1x2x16xf32> loc("row")
  %1 = circle.fully_connected(%0, %t) : (tensor<1x2x16xf32>, tensor<16x16xf32>) -> tensor<2x16xf32>
  %2 = circle.reshape(%1) {new_shape = [1, 2, 16]} : (tensor<2x16xf32>) -> tensor<1x2x16xf32>
  func.return %2 : tensor<1x2x16xf32>
}
// CHECK: %[[T:.*]] = circle.const {{.*}} : tensor<16x16x!{{.*}}> loc("t")
// CHECK-NEXT: %[[REAL:.*]] = circle.dequantize(%[[T]])
// CHECK: %[[LIST:.*]] = circle.reshape(%ids, {{.*}} -> tensor<2xi64>
// CHECK-NEXT: %[[IDS:.*]] = circle.cast(%[[LIST]])
// CHECK-NEXT: %[[ROWS:.*]] = circle.embedding_lookup(%[[IDS]], %[[T]]) : {{.*}} -> tensor<2x16xf32>
// CHECK: %[[FOUND:.*]] = circle.reshape(%[[ROWS]], {{.*}} -> tensor<1x2x16xf32> loc("row")
// CHECK-NEXT: circle.fully_connected(%[[FOUND]], %[[REAL]])

// -----

// Other lookups move codes of one scale; small tables stay as they are.
func.func @main(%ids: tensor<2xi32>) -> (tensor<16x2xf32>, tensor<2x2xf32>) {
  %t = circle.const #circle.blob<"0x000000000000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000000000000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000000000000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000000000000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000000000000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000000000000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000000000000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041000000000000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041000050410000604100007041"> : tensor<16x8xf32> loc("t")
  %s = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32>
  %0 = circle.gather(%t, %ids) {axis = 1} : (tensor<16x8xf32>, tensor<2xi32>) -> tensor<16x2xf32> loc("columns")
  %1 = circle.gather(%s, %ids) {axis = 0} : (tensor<2x2xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  func.return %0, %1 : tensor<16x2xf32>, tensor<2x2xf32>
}
// CHECK: %[[T:.*]] = circle.const {{.*}} : tensor<16x8x!quant.uniform<i8:f32, 0.125>> loc("t")
// CHECK-NEXT: %[[S:.*]] = circle.const [2.0, -1.0, 0.5, 4.0]
// CHECK-NEXT: %[[CODES:.*]] = circle.gather(%[[T]], %ids) {axis = 1} : {{.*}} -> tensor<16x2x!quant.uniform<i8:f32, 0.125>>
// CHECK-NEXT: circle.dequantize(%[[CODES]]) : {{.*}} loc("columns")
// CHECK-NEXT: circle.gather(%[[S]], %ids)

// -----

// An operator may have a precision of its own, or stay as it is.
func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32> loc("w")
  %0 = "circle.fully_connected"(%x, %w) {quant.precision = "int4_wo"} : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  %1 = circle.fully_connected(%0, %w) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  %2 = "circle.fully_connected"(%1, %w) {quant.precision = "float"} : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  func.return %2 : tensor<1x2xf32>
}
// CHECK-DAG: %[[FOUR:.*]] = circle.dequantize(%{{.*}}) : (tensor<2x2x!quant.uniform<i4:f32:0,
// CHECK-DAG: %[[EIGHT:.*]] = circle.dequantize(%{{.*}}) : (tensor<2x2x!quant.uniform<i8:f32:0,
// CHECK-DAG: %[[REAL:.*]] = circle.const [2.0, -1.0, 0.5, 4.0]
// CHECK: circle.fully_connected(%x, %[[FOUR]])
// CHECK-NEXT: circle.fully_connected(%{{.*}}, %[[EIGHT]])
// CHECK-NEXT: circle.fully_connected(%{{.*}}, %[[REAL]])
