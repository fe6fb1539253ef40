// RUN: not odc-opt %s --circle-equalize-channels='relu6=sometimes' 2>&1 | filecheck %s
// RUN: not odc-opt %s --circle-equalize-channels='alpha=1.5' 2>&1 | filecheck %s --check-prefix ALPHA
// RUN: not odc-opt %s --circle-equalize-channels='ranges="/no/such/file.npz"' 2>&1 | filecheck %s --check-prefix FILE

func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  func.return %x : tensor<1x4xf32>
}
// CHECK: error: relu6 is 'sometimes', it must be one of keep, recorded
// ALPHA: error: alpha is 1.5, expected a number from 0 to 1
// FILE: error: cannot read channel ranges: No such file or directory (in /no/such/file.npz
