// RUN: odc-opt %s --print-op-generic | filecheck %s
// RUN: odc-opt %s --print-op-generic --print-no-properties | filecheck %s --check-prefix=OLD
// RUN: odc-opt %s --print-op-generic --print-no-properties | odc-opt --print-op-generic | filecheck %s

// CHECK: "circle.relu_0_to_1"(%x) <{version = 2 : i32}> : (tensor<2xf32>) -> tensor<2xf32>
// OLD: "circle.relu_0_to_1"(%x) {version = 2 : i32} : (tensor<2xf32>) -> tensor<2xf32>
func.func @main(%x: tensor<2xf32>) {
  %0 = circle.relu_0_to_1(%x) {version = 2} : (tensor<2xf32>) -> tensor<2xf32>
  func.return
}
