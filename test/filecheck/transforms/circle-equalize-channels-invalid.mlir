// RUN: not odc-opt %s --circle-equalize-channels='relu6=sometimes' 2>&1 | filecheck %s
// RUN: not odc-opt %s --circle-equalize-channels='iterations=0' 2>&1 | filecheck %s --check-prefix NEVER
// RUN: not odc-opt %s --circle-equalize-channels='ranges="/no/such/file.npz"' 2>&1 | filecheck %s --check-prefix FILE

func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  func.return %x : tensor<1x4xf32>
}
// CHECK: error: relu6 is 'sometimes', it must be one of keep, recorded
// NEVER: error: crossing is 2, iterations 0, tolerance 0.001; they must be at least 0, 1 and 0
// FILE: error: cannot read channel ranges: No such file or directory (in /no/such/file.npz
