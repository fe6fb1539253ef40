// RUN: odc-opt %s -p "circle-clip-masks{seen=\"%S/Inputs/circle-clip-masks-seen.json\"}" | filecheck %s

// A mask that is computed of reals was seen as low as -1e9: it is limited, and what computes it alone stays float.
func.func @computed(%x: tensor<2x2xf32> loc("x"), %m: tensor<1x2xf32> loc("m")) -> tensor<2x2xf32> {
  %one = circle.const [1.0] : tensor<f32>
  %far = circle.const [-1.0e+9] : tensor<f32>
  %0 = circle.relu(%m) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  %1 = circle.sub(%one, %0) : (tensor<f32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  %2 = circle.mul(%1, %far) : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32> loc("mask")
  %3 = circle.add(%x, %2) : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  %4 = circle.softmax(%3) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %5 = circle.mul(%4, %0) : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  func.return %5 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @computed(
// CHECK: circle.relu(%{{[a-z0-9_]+}}) : (
// CHECK: circle.sub({{.*}} attributes {quant.precision = "float", quant.reason = "it computes a mask {{.*}}"}
// CHECK: [[FAR:%.+]] = circle.mul({{.*}} attributes {quant.precision = "float", quant.reason = "it computes a mask {{.*}}"}
// CHECK: [[LIMIT:%.+]] = circle.const [-2048.0] : tensor<1xf32>
// CHECK: [[NEAR:%.+]] = circle.maximum([[FAR]], [[LIMIT]]) : (
// CHECK: circle.add({{.*}}, [[NEAR]])

// A mask that something else reads too needs codes that go further: what limits it stays float.
func.func @read_twice(%x: tensor<2x2xf32> loc("x"), %m: tensor<1x2xf32> loc("mask")) -> (tensor<2x2xf32>, tensor<1x2xf32>) {
  %0 = circle.add(%x, %m) : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  %1 = circle.softmax(%0) {beta = 1.0} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = circle.abs(%m) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %1, %2 : tensor<2x2xf32>, tensor<1x2xf32>
}
// CHECK-LABEL: func.func @read_twice(
// CHECK: circle.maximum({{.*}} attributes {quant.precision = "float", quant.reason = "it limits a mask {{.*}}"}
