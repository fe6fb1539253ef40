// RUN: odc-opt %s --split-input-file --print-diagnostics -p convert-circle-to-kernels | filecheck %s

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
// CHECK: no processor is chosen

// -----

// An operator that no pattern lowers, as placement would have told.
builtin.module attributes {odc.target = #odc.target<"x86-64-vnni", memory = flash>} {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = odc.segment @segment_0(%x) : (tensor<4xf32>) -> tensor<4xf32> for "x86-64-vnni" circle {
    ^bb0(%a: tensor<4xf32>):
      %1 = circle.atan2(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      odc.yield %1 : tensor<4xf32>
    }
    func.return %0 : tensor<4xf32>
  }
}
// CHECK: illegal after convert-circle-to-kernels: no pattern lowers this operation
// CHECK-SAME: ATAN2

// -----

// An operator that its pattern refuses.
builtin.module attributes {odc.target = #odc.target<"x86-64-vnni", memory = flash>} {
  func.func @main(%x: tensor<4xf32>, %axis: tensor<1xi32>) -> tensor<f32> {
    %0 = odc.segment @segment_0(%x, %axis) : (tensor<4xf32>, tensor<1xi32>) -> tensor<f32> for "x86-64-vnni" circle {
    ^bb0(%a: tensor<4xf32>, %b: tensor<1xi32>):
      %1 = circle.sum(%a, %b) {keep_dims = false} : (tensor<4xf32>, tensor<1xi32>) -> tensor<f32>
      odc.yield %1 : tensor<f32>
    }
    func.return %0 : tensor<f32>
  }
}
// CHECK: computed axes have no native kernel
// CHECK-SAME: SUM
