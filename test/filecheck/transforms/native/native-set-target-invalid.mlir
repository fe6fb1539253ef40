// RUN: not odc-opt %s --native-set-target='target=z80' 2>&1 | filecheck %s

// CHECK: unknown processor 'z80'
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
