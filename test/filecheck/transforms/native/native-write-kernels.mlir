// RUN: odc-opt %s -p native-partition,convert-circle-to-kernels,native-write-kernels | filecheck %s

// Declared kernels get their loops.
func.func @main(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.max_pool_2d(%x) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: func.func private @flip_sign(%[[IN:.*]]: memref<?xi8>, %[[OUT:.*]]: memref<?xi8>, %[[COUNT:.*]]: index) {
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %[[COUNT]] step %{{.*}} {
// CHECK-NEXT: %[[X:.*]] = vector.load %[[IN]][%[[I]]] : memref<?xi8>, vector<64xi8>
// CHECK-NEXT: %[[Y:.*]] = arith.xori %[[X]], %{{.*}} : vector<64xi8>
// CHECK-NEXT: vector.store %[[Y]], %[[OUT]][%[[I]]] : memref<?xi8>, vector<64xi8>
// CHECK: func.func private @pool_how0_kind1_zero0_clamp1_taps0(
// CHECK: arith.maxui
