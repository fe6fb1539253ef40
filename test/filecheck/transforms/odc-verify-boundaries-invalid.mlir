// RUN: odc-opt %s --split-input-file --disable-verify --print-diagnostics --odc-verify-boundaries | filecheck %s

func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5>> loc("x")) -> tensor<2x2x!quant.uniform<i8:f32, 0.5>> {
  %0 = odc.segment @segment_0(%x) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x2x!quant.uniform<i8:f32, 0.5>> circle {
  ^bb0(%a: tensor<2x2x!quant.uniform<i8:f32, 0.5>>):
    odc.yield %a : tensor<2x2x!quant.uniform<i8:f32, 0.5>>
  }
  func.return %0 : tensor<2x2x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: shape [4] on one side of the boundary, shape [2, 2] on the other (in segment_0, {{.*}}tensor 'x')

// -----

func.func @main(%x: tensor<4xf32> loc("x")) -> tensor<4x!quant.uniform<i8:f32, 0.5>> {
  %0 = odc.segment @segment_0(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> circle {
  ^bb0(%a: tensor<4x!quant.uniform<i8:f32, 0.5>>):
    odc.yield %a : tensor<4x!quant.uniform<i8:f32, 0.5>>
  }
  func.return %0 : tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: tensor<4xf32> on one side of the boundary, tensor<4x!quant.uniform<i8:f32, 0.5>> on the other, with no conversion between them

// -----

func.func @main(%x: tensor<4xf32> loc("x")) -> tensor<4xf32> {
  %0 = odc.segment @segment_0(%x) : (tensor<4xf32>) -> tensor<4xf32> circle {
  ^bb0(%a: tensor<4xf32> loc("a")):
    odc.yield %a : tensor<4xf32>
  }
  func.return %0 : tensor<4xf32>
}
// CHECK: a tensor is float32, which does not cross the edge of a segment {{.*}}tensor 'a'

// -----

func.func @main(%x: tensor<?x!quant.uniform<i8:f32, 0.5>>) -> tensor<?x!quant.uniform<i8:f32, 0.5>> {
  %0 = odc.segment @segment_0(%x) : (tensor<?x!quant.uniform<i8:f32, 0.5>>) -> tensor<?x!quant.uniform<i8:f32, 0.5>> circle {
  ^bb0(%a: tensor<?x!quant.uniform<i8:f32, 0.5>>):
    odc.yield %a : tensor<?x!quant.uniform<i8:f32, 0.5>>
  }
  func.return %0 : tensor<?x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: a tensor has shape [?], the edge of a segment needs a known one

// -----

func.func @main(%x: tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>>) -> tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>> {
  %0 = odc.segment @segment_0(%x) : (tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>>) -> tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>> circle {
  ^bb0(%a: tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>>):
    odc.yield %a : tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>>
  }
  func.return %0 : tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>>
}
// CHECK: a tensor has 2 scales, the edge of a segment needs one scale
