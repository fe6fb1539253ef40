// RUN: odc-opt %s --split-input-file --quant-normalize-inputs='moments="%S/Inputs/input-moments-joined.npz"' | filecheck %s

// Several inputs of different units that are joined along the channels are normalised behind that.
func.func @main(%a: tensor<1x1xf32> loc("a"), %b: tensor<1x1xf32> loc("b")) -> tensor<1x1xf32> {
  %w = circle.const [4.0, 0.01] : tensor<1x2xf32>
  %c = circle.concatenation(%a, %b) {axis = 1} : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %0 = circle.fully_connected(%c, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %0 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[J:.*]] = circle.concatenation({{.*}}) {{.*}}quant.precision = "float"
// CHECK: %[[C:.*]] = circle.const [0.3, 1200.0] : tensor<2xf32>
// CHECK: %[[M:.*]] = circle.sub(%[[J]], %[[C]]) {{.*}}quant.precision = "float"
// CHECK: %[[F:.*]] = circle.const [2.5, 0.002] : tensor<2xf32>
// CHECK: %[[N:.*]] = circle.mul(%[[M]], %[[F]]) {{.*}}quant.precision = "float"
// CHECK: circle.fully_connected(%[[N]],

// -----

// What reads one of them apart keeps it as it is.
func.func @main(%a: tensor<1x1xf32> loc("a"), %b: tensor<1x1xf32> loc("b")) -> (tensor<1x1xf32>, tensor<1x1xf32>) {
  %w = circle.const [4.0, 0.01] : tensor<1x2xf32>
  %c = circle.concatenation(%a, %b) {axis = 1} : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %0 = circle.fully_connected(%c, %w) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  %1 = circle.abs(%a) : (tensor<1x1xf32>) -> tensor<1x1xf32>
  func.return %0, %1 : tensor<1x1xf32>, tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[J:.*]] = circle.concatenation({{.*}}) {{.*}}quant.precision = "float"
// CHECK: %[[M:.*]] = circle.sub(%[[J]], {{.*}}quant.precision = "float"
// CHECK: %[[N:.*]] = circle.mul(%[[M]], {{.*}}quant.precision = "float"
// CHECK: circle.fully_connected(%[[N]],
// CHECK: circle.abs(%a)
