// RUN: not odc-opt %s --convert-circle-to-kernels 2>&1 | filecheck %s

// CHECK: no processor is chosen
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
