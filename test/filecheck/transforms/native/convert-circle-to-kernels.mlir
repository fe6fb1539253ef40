// RUN: odc-opt %s -p native-partition,convert-circle-to-kernels | filecheck %s

// Signed codes are held 128 higher between input and output; every layer is one call; what the circle body says stays.
func.func @main(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.max_pool_2d(%x) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: odc.segment @segment_0
// CHECK: circle.max_pool_2d
// CHECK: builtin.module @segment_0 attributes {native.constants = #circle.blob
// CHECK: func.func @segment_0(%[[IN:.*]]: memref<?xi8>, %[[OUT:.*]]: memref<?xi8>, %[[ARENA:.*]]: memref<?xi8>, %[[CONSTANTS:.*]]: memref<?xi8>) -> i32 {
// CHECK: %[[HELD:.*]] = memref.alloc(%{{.*}}) : memref<?xi8>
// CHECK-NEXT: func.call @flip_sign(%[[IN]], %[[HELD]], %{{.*}})
// CHECK: memref.view %[[CONSTANTS]]
// CHECK: %[[LARGEST:.*]] = memref.alloc(%{{.*}}) : memref<?xi8>
// CHECK-NEXT: func.call @max_pool(%[[HELD]], {{.*}}, %[[LARGEST]], {{.*}})
// CHECK-NEXT: func.call @flip_sign(%[[LARGEST]], %[[OUT]], %{{.*}})
// CHECK: func.func private @max_pool({{.*}}) -> () attributes {native.kernel = "max_pool", native.options = {}}
