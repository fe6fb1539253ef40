// RUN: odc-opt %s --split-input-file -p "quant-assign-params{scheme=int8}" | filecheck %s

// Softplus stays float between the codes of its input and its result.
!x = tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.55]>>
func.func @softplus(%x: !x) -> !x {
  %one = circle.const [1.0] : tensor<1xf32>
  %0 = circle.relu(%x) : (!x) -> !x
  %1 = circle.exp(%0) : (!x) -> !x
  %2 = circle.add(%1, %one) : (!x, tensor<1xf32>) -> !x
  %3 = circle.log(%2) : (!x) -> !x
  func.return %3 : !x
}
// CHECK-LABEL: func.func @softplus(
// CHECK: circle.relu({{.*}}quant.results = [!quant.uniform<i8:f32, 0.01:-28>]
// CHECK: circle.exp({{.*}}quant.operands = [f32], quant.results = [f32], quant.reason = "it is part of log(1 + exp(x)), which is exact as a table"
// CHECK: circle.add({{.*}}quant.operands = [f32, f32]{{.*}}quant.results = [f32]
// CHECK: circle.log({{.*}}quant.operands = [f32]{{.*}}quant.results = [f32]

// -----

// A summand per channel gives no single table.
!x = tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.55]>>
func.func @vector(%x: !x) -> !x {
  %one = circle.const [1.0, 2.0] : tensor<2xf32>
  %0 = circle.relu(%x) : (!x) -> !x
  %1 = circle.exp(%0) : (!x) -> !x
  %2 = circle.add(%1, %one) : (!x, tensor<2xf32>) -> !x
  %3 = circle.log(%2) : (!x) -> !x
  func.return %3 : !x
}
// CHECK-LABEL: func.func @vector(
// CHECK: circle.exp({{.*}}quant.results = [!quant.uniform<i8:f32, 0.01:-28>]
// CHECK: circle.log({{.*}}quant.results = [!quant.uniform<i8:f32, 0.01:-28>]

// -----

// Another operator reads the sum.
!x = tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.55]>>
func.func @shared(%x: !x) -> !x {
  %one = circle.const [1.0] : tensor<1xf32>
  %0 = circle.relu(%x) : (!x) -> !x
  %1 = circle.exp(%0) : (!x) -> !x
  %2 = circle.add(%1, %one) : (!x, tensor<1xf32>) -> !x
  %l = circle.log(%2) : (!x) -> !x
  %3 = circle.mul(%l, %2) : (!x, !x) -> !x
  func.return %3 : !x
}
// CHECK-LABEL: func.func @shared(
// CHECK: circle.exp({{.*}}quant.results = [!quant.uniform<i8:f32, 0.01:-28>]
// CHECK: circle.log({{.*}}quant.results = [!quant.uniform<i8:f32, 0.01:-28>]
