// RUN: odc-opt %s -p native-partition,convert-circle-to-kernels,native-allocate-memory | filecheck %s

// Two buffers that are in use together: each has its bytes and the gap behind them, in whole cache lines.
func.func @main(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.max_pool_2d(%x) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: native.arena_bytes = 640 : i64
// CHECK-NOT: memref.alloc
// CHECK: %[[FIRST:.*]] = memref.view %arena[%{{.*}}][%{{.*}}] : memref<?xi8> to memref<?xi8>
// CHECK-NEXT: func.call @flip_sign(%in0, %[[FIRST]], %{{.*}})
// CHECK: %[[PLACE:.*]] = arith.constant 320 : index
// CHECK-NEXT: %[[SECOND:.*]] = memref.view %arena[%[[PLACE]]][%{{.*}}] : memref<?xi8> to memref<?xi8>
// CHECK: func.call @pool_how0_kind1_zero0_clamp1_taps0(%[[FIRST]], %[[SECOND]], {{.*}})
