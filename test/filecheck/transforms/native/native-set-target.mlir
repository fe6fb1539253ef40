// RUN: odc-opt %s --native-set-target='target=aarch64' | filecheck %s

// CHECK: odc.target = #odc.target<"aarch64"
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
