// RUN: odc-opt %s --split-input-file --odc-lift-variables | filecheck %s

// Nothing says what the variable holds in the first run.
func.func @main() -> tensor<2xi8> {
  %v = circle.var_handle() {shared_name = "v"} : () -> tensor<!circle.resource>
  %0 = circle.read_variable(%v) : (tensor<!circle.resource>) -> tensor<2xi8>
  circle.assign_variable(%v, %0) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  func.return %0 : tensor<2xi8>
}
// CHECK-LABEL: func.func @main()
// CHECK: circle.read_variable

// -----

// Another type is assigned than is read.
func.func @main(%x: tensor<2x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x!quant.uniform<i8:f32, 0.25>> {
  circle.call_once() {init_subgraph_index = @initial} : () -> ()
  %v = circle.var_handle() {shared_name = "v"} : () -> tensor<!circle.resource>
  %0 = circle.read_variable(%v) : (tensor<!circle.resource>) -> tensor<2x!quant.uniform<i8:f32, 0.25>>
  circle.assign_variable(%v, %x) : (tensor<!circle.resource>, tensor<2x!quant.uniform<i8:f32, 0.5>>) -> ()
  func.return %0 : tensor<2x!quant.uniform<i8:f32, 0.25>>
}
func.func @initial() {
  %v = circle.var_handle() {shared_name = "v"} : () -> tensor<!circle.resource>
  %0 = circle.const [3, 4] : tensor<2xi8>
  circle.assign_variable(%v, %0) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  func.return
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.call_once()
// CHECK: circle.read_variable

// -----

// Another function uses the variable as well.
func.func @main(%x: tensor<2xi8>) -> tensor<2xi8> {
  circle.call_once() {init_subgraph_index = @initial} : () -> ()
  %v = circle.var_handle() {shared_name = "v"} : () -> tensor<!circle.resource>
  %0 = circle.read_variable(%v) : (tensor<!circle.resource>) -> tensor<2xi8>
  %1 = circle.call(%0) {subgraph = @other} : (tensor<2xi8>) -> tensor<2xi8>
  func.return %1 : tensor<2xi8>
}
func.func @initial() {
  %v = circle.var_handle() {shared_name = "v"} : () -> tensor<!circle.resource>
  %0 = circle.const [3, 4] : tensor<2xi8>
  circle.assign_variable(%v, %0) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  func.return
}
func.func @other(%x: tensor<2xi8>) -> tensor<2xi8> {
  %v = circle.var_handle() {shared_name = "v"} : () -> tensor<!circle.resource>
  circle.assign_variable(%v, %x) : (tensor<!circle.resource>, tensor<2xi8>) -> ()
  func.return %x : tensor<2xi8>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.read_variable
