// RUN: not odc-opt %s --odc-fix-batch='batch=0' 2>&1 | filecheck %s

func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  func.return %x : tensor<?x4xf32>
}
// CHECK: error: the batch size is 0, it must be at least 1
