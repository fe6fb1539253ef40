// RUN: odc-opt %s --split-input-file -p "quant-limit-far{ranges=\"%S/Inputs/quant-limit-far.json\"}" | filecheck %s
// RUN: odc-opt %s --split-input-file -p quant-limit-far | filecheck %s --check-prefix=WITHOUT

// Both ends are too far out: each is limited to what the codes reach.
func.func @main(%x: tensor<4xf32> loc("x")) -> tensor<4x!quant.uniform<i8:f32, 0.5:-8>> {
  %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5:-8>> loc("codes")
  func.return %0 : tensor<4x!quant.uniform<i8:f32, 0.5:-8>>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[LOW:.*]] = circle.const [-60.0] : tensor<1xf32>
// CHECK: %[[A:.*]] = circle.maximum(%x, %[[LOW]])
// CHECK: %[[HIGH:.*]] = circle.const [67.5] : tensor<1xf32>
// CHECK: %[[B:.*]] = circle.minimum(%[[A]], %[[HIGH]])
// CHECK: circle.quantize(%[[B]])
// WITHOUT-LABEL: func.func @main(
// WITHOUT-NOT: circle.maximum

// -----

// One end is within 32 bits of a coarser scale.
func.func @main(%x: tensor<4xf32> loc("x")) -> tensor<4x!quant.uniform<i16:f32, 4.0>> {
  %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i16:f32, 4.0>> loc("codes")
  func.return %0 : tensor<4x!quant.uniform<i16:f32, 4.0>>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.const [-131072.0] : tensor<1xf32>
// CHECK: circle.maximum
// CHECK-NOT: circle.minimum

// -----

// QUANTIZE holds what is near, what was not seen, and codes.
func.func @main(%near: tensor<4xf32> loc("near"), %y: tensor<4xf32> loc("unseen"), %c: tensor<4x!quant.uniform<i8:f32, 0.5>> loc("x")) -> (tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.25>>) {
  %0 = circle.quantize(%near) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> loc("a")
  %1 = circle.quantize(%y) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> loc("b")
  %2 = circle.quantize(%c) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.25>> loc("d")
  func.return %0, %1, %2 : tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.5>>, tensor<4x!quant.uniform<i8:f32, 0.25>>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: circle.m
