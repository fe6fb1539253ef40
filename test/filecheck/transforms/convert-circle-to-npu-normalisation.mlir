// RUN: odc-opt %s --split-input-file -p 'odc-set-target,npu-mark-supported,npu-form-segments,npu-outline-segments,convert-circle-to-npu' | filecheck %s

// Codes of 8 bits and one gamma for all: two numbers for each row, by its largest element and by its mean square, to
// which epsilon adds. Pooling finds the largest elements. Squares of few rows are reduced one by one.
func.func @narrow(%x: tensor<1x2x64x!quant.uniform<i8:f32, 0.02:3>>) -> tensor<1x2x64x!quant.uniform<i8:f32, 0.04:5>> {
  %g = circle.const [1.5] : tensor<1xf32>
  %0 = circle.rms_norm(%x, %g) {epsilon = 0.0001} : (tensor<1x2x64x!quant.uniform<i8:f32, 0.02:3>>, tensor<1xf32>) -> tensor<1x2x64x!quant.uniform<i8:f32, 0.04:5>>
  func.return %0 : tensor<1x2x64x!quant.uniform<i8:f32, 0.04:5>>
}
// CHECK-LABEL: func.func @narrow(
// CHECK: npu.program @segment_0
// CHECK: %[[D:.*]] = npu.scale %[[X:.*]] in_zero 3 scale <1073741824, 8>
// CHECK-NEXT: %[[N:.*]] = npu.scale %[[X]] in_zero 3 scale <-1073741824, 8>
// CHECK-NEXT: npu.elementwise max %[[D]], %[[N]]
// CHECK: npu.pool max %{{.*}} kernel [1, 64] stride [1, 64] {{.*}} : tensor<1x2x64x1x{{.*}} -> tensor<1x2x1x1x
// CHECK: %[[T:.*]] = npu.lut
// CHECK-NEXT: %[[E:.*]] = npu.elementwise mul %[[D]], %[[T]]
// CHECK-NEXT: npu.elementwise mul %[[E]], %[[E]]
// CHECK: npu.reduce sum
// CHECK: npu.elementwise mul %[[T]], %[[T]]
// CHECK-NEXT: npu.elementwise add
// CHECK-NEXT: %[[COARSE:.*]] = npu.lut
// CHECK: npu.reduce sum
// CHECK: npu.elementwise mul %[[T]], %[[T]]
// CHECK-NEXT: npu.elementwise add
// CHECK-NEXT: %[[FINE:.*]] = npu.lut
// CHECK-NEXT: %[[R:.*]] = npu.elementwise add %[[COARSE]], %[[FINE]]
// CHECK-NEXT: npu.elementwise mul %[[E]], %[[R]] out_zero 5

// -----

// Codes of 16 bits, without epsilon, with a gamma for each channel; the array adds up many rows.
func.func @wide(%x: tensor<1x16x4x!quant.uniform<i16:f32, 0.002>>) -> tensor<1x16x4x!quant.uniform<i16:f32, 0.001>> {
  %g = circle.const [1.5, 0.5, -2.0, 1.0] : tensor<4xf32>
  %0 = circle.rms_norm(%x, %g) {epsilon = 0.0} : (tensor<1x16x4x!quant.uniform<i16:f32, 0.002>>, tensor<4xf32>) -> tensor<1x16x4x!quant.uniform<i16:f32, 0.001>>
  func.return %0 : tensor<1x16x4x!quant.uniform<i16:f32, 0.001>>
}
// CHECK-LABEL: func.func @wide(
// CHECK: npu.program @segment_0
// CHECK: %[[N:.*]] = npu.scale %[[X:.*]] scale <-1073741824, 1>
// CHECK-NEXT: npu.elementwise max %[[X]], %[[N]]
// CHECK: npu.lut
// CHECK-NEXT: %[[E:.*]] = npu.elementwise mul %[[X]]
// CHECK-NEXT: %[[S:.*]] = npu.elementwise mul %[[E]], %[[E]]
// CHECK-NEXT: npu.conv %[[S]] kernel [1, 1]
// CHECK-NEXT: npu.lut
// CHECK-NEXT: npu.conv %[[S]] kernel [1, 1]
// CHECK-NEXT: npu.lut
// CHECK-NEXT: npu.elementwise add
// CHECK-NEXT: %[[Y:.*]] = npu.elementwise mul %[[E]]
// CHECK-NEXT: %[[G:.*]] = npu.constant
// CHECK-NEXT: npu.elementwise mul %[[Y]], %[[G]]
