// RUN: odc-opt %s --split-input-file -p 'odc-set-target,npu-mark-supported,npu-form-segments,npu-outline-segments,convert-circle-to-npu' | filecheck %s

// Half pixels: rows begin a quarter above the first one, columns at a sixth, in units of 1/1024.
func.func @interpolated(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4x3x1x!quant.uniform<i8:f32, 0.5:3>> {
  %o = circle.const [4, 3] : tensor<2xi32>
  %0 = circle.resize_bilinear(%x, %o) {align_corners = false, half_pixel_centers = true} : (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>, tensor<2xi32>) -> tensor<1x4x3x1x!quant.uniform<i8:f32, 0.5:3>>
  func.return %0 : tensor<1x4x3x1x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @interpolated(
// CHECK: npu.program @segment_0
// CHECK-NEXT: npu.resize bilinear %{{.*}} start [-256, -171] step [512, 683] :

// -----

// uint8 is interpolated in real numbers, which halves and quarters are exact in.
func.func @unsigned(%x: tensor<1x3x3x1x!quant.uniform<u8:f32, 0.5:3>>) -> tensor<1x5x9x1x!quant.uniform<u8:f32, 0.5:3>> {
  %o = circle.const [5, 9] : tensor<2xi32>
  %0 = circle.resize_bilinear(%x, %o) {align_corners = true, half_pixel_centers = false} : (tensor<1x3x3x1x!quant.uniform<u8:f32, 0.5:3>>, tensor<2xi32>) -> tensor<1x5x9x1x!quant.uniform<u8:f32, 0.5:3>>
  func.return %0 : tensor<1x5x9x1x!quant.uniform<u8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @unsigned(
// CHECK: npu.program @segment_0
// CHECK-NEXT: npu.resize bilinear %{{.*}} start [0, 0] step [512, 256] :

// -----

// So is int16 where 10 bits do not hold the positions: here they do, and integers keep all of its bits.
func.func @wide(%x: tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x8x1x!quant.uniform<i16:f32, 0.5>> {
  %o = circle.const [4, 8] : tensor<2xi32>
  %0 = circle.resize_bilinear(%x, %o) {align_corners = false, half_pixel_centers = true} : (tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>>, tensor<2xi32>) -> tensor<1x4x8x1x!quant.uniform<i16:f32, 0.5>>
  func.return %0 : tensor<1x4x8x1x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @wide(
// CHECK: npu.program @segment_0
// CHECK-NEXT: npu.resize bilinear %{{.*}} start [-256, -384] step [512, 256] : tensor<1x2x2x1x!quant.uniform<i16

// -----

// Thirds are no multiples of 1/1024.
func.func @thirds(%x: tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>>) -> tensor<1x4x6x1x!quant.uniform<i16:f32, 0.5>> {
  %o = circle.const [4, 6] : tensor<2xi32>
  %0 = circle.resize_bilinear(%x, %o) {align_corners = false, half_pixel_centers = true} : (tensor<1x2x2x1x!quant.uniform<i16:f32, 0.5>>, tensor<2xi32>) -> tensor<1x4x6x1x!quant.uniform<i16:f32, 0.5>>
  func.return %0 : tensor<1x4x6x1x!quant.uniform<i16:f32, 0.5>>
}
// CHECK-LABEL: func.func @thirds(
// CHECK-NOT: npu.program
// CHECK: circle.resize_bilinear

// -----

// In units of 2^-24.
func.func @nearest(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4x3x1x!quant.uniform<i8:f32, 0.5:3>> {
  %o = circle.const [4, 3] : tensor<2xi32>
  %0 = circle.resize_nearest_neighbor(%x, %o) {align_corners = false, half_pixel_centers = false} : (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5:3>>, tensor<2xi32>) -> tensor<1x4x3x1x!quant.uniform<i8:f32, 0.5:3>>
  func.return %0 : tensor<1x4x3x1x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @nearest(
// CHECK: npu.program @segment_0
// CHECK-NEXT: npu.resize nearest %{{.*}} start [0, {{.*}}] step [8388608, 11184811] :
