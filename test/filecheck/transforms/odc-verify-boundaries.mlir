// RUN: odc-opt %s --split-input-file --disable-verify --odc-verify-boundaries | odc-opt --split-input-file | filecheck %s

// The body has another scale than the host: casts on the host go between, and the result verifies.
func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5>> loc("x")) -> tensor<4x!quant.uniform<i8:f32, 0.5>> {
  %0 = odc.segment @segment_0(%x) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> circle {
  ^bb0(%a: tensor<4x!quant.uniform<i8:f32, 0.25:3>>):
    %b = circle.relu(%a) : (tensor<4x!quant.uniform<i8:f32, 0.25:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.25:3>>
    odc.yield %b : tensor<4x!quant.uniform<i8:f32, 0.25:3>>
  } loc("y")
  func.return %0 : tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: %[[IN:.*]] = circle.quantize(%x) attributes {odc.placed = "host", odc.reason = "boundary: converts between a segment and the host"} : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.25:3>> loc("x_segment_0")
// CHECK-NEXT: %[[SEGMENT:.*]] = odc.segment @segment_0(%[[IN]]) : (tensor<4x!quant.uniform<i8:f32, 0.25:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.25:3>>
// CHECK: %[[OUT:.*]] = circle.quantize(%[[SEGMENT]]) {{.*}} -> tensor<4x!quant.uniform<i8:f32, 0.5>>
// CHECK-NEXT: func.return %[[OUT]]

// -----

// What agrees is left alone.
func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> {
  %0 = odc.segment @segment_0(%x) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> circle {
  ^bb0(%a: tensor<4x!quant.uniform<i8:f32, 0.5>>):
    odc.yield %a : tensor<4x!quant.uniform<i8:f32, 0.5>>
  }
  func.return %0 : tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: func.func @main
// CHECK-NEXT: odc.segment
// CHECK-NOT: circle.quantize
