// RUN: odc-opt %s '--circle-optimize=level=none rewrites=dynamic_batch_to_single_batch' | filecheck %s

func.func @dynamic_batch_to_single_batch(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = circle.relu(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return %0 : tensor<?x4xf32>
}
// CHECK-LABEL: func.func @dynamic_batch_to_single_batch(
// CHECK-SAME: tensor<1x4xf32>) -> tensor<1x4xf32>
// CHECK-NEXT: circle.relu({{.*}} -> tensor<1x4xf32>
