// RUN: odc-opt %s -p "native-partition,convert-circle-to-kernels,native-allocate-memory,native-divide-layers{layer-products=1 segment-products=1}" | filecheck %s
// RUN: odc-opt %s -p "native-partition,convert-circle-to-kernels,native-allocate-memory,native-divide-layers" | filecheck %s --check-prefix=SMALL

// 64 pixels of 3 channels: parts begin at whole tiles, and compute their last pixels aside, because a vector of
// results reaches into those that follow. What is not divided is done by part 0, and all parts wait in between.
func.func @main(%x: tensor<1x8x8x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x8x8x3x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] : tensor<3x1x1x4x!quant.uniform<i8:f32, 0.5>>
  %b = circle.const [0, 0, 0] : tensor<3x!quant.uniform<i32:f32, 0.25>>
  %0 = circle.conv_2d(%x, %w, %b) {padding = valid, stride = [1, 1]} : (tensor<1x8x8x4x!quant.uniform<i8:f32, 0.5>>, tensor<3x1x1x4x!quant.uniform<i8:f32, 0.5>>, tensor<3x!quant.uniform<i32:f32, 0.25>>) -> tensor<1x8x8x3x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x8x8x3x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: native.part = "segment_0_part"
// CHECK: native.scratch_bytes = 320 : i64
// CHECK: func.func @segment_0(
// CHECK-NOT: scf.if
// CHECK: func.func @segment_0_part({{.*}}, %scratch: memref<?xi8>, %barrier: memref<?xi8>, %part: index, %parts: index) -> i32 {
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %part, %{{.*}} : index
// CHECK-NEXT: scf.if %[[FIRST]] {
// CHECK-NEXT: func.call @flip_sign(%in0
// CHECK-NEXT: }
// CHECK: func.call @odc_barrier(%barrier, %parts)
// CHECK-NEXT: %[[PARTS:.*]] = arith.minsi %parts, %{{.*}} : index
// CHECK-NEXT: %[[BUSY:.*]] = arith.cmpi slt, %part, %[[PARTS]] : index
// CHECK-NEXT: scf.if %[[BUSY]] {
// CHECK: %[[END:.*]] = arith.select
// CHECK-NEXT: %[[LAST:.*]] = arith.subi %[[END]], %[[ROWS:.*]] : index
// CHECK: memref.view %arena
// CHECK-NEXT: func.call @convolve_rows8_vectors1_offset0(
// CHECK: %[[ASIDE:.*]] = memref.view %scratch
// CHECK-NEXT: func.call @convolve_rows8_vectors1_offset0({{.*}}, %[[ROWS]], {{.*}}, %[[ASIDE]],
// CHECK: func.call @copy_rows(
// CHECK-NEXT: }
// CHECK-NEXT: func.call @odc_barrier(%barrier, %parts)
// CHECK: func.call @flip_sign({{.*}}, %out0
// CHECK: func.func private @odc_barrier(memref<?xi8>, index) -> ()

// SMALL-NOT: scf.if
