// RUN: odc-opt %s --split-input-file --quant-absorb-pairs | filecheck %s

// Rounding goes, FAKE_QUANT replaces an earlier one; constants give their parameters and keep them to themselves.
func.func @main(%x: tensor<1x4xf32> loc("x"), %b: tensor<2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [1, 2, 3, 4, 5, 6, 7, 8] : tensor<2x4x!quant.uniform<i8:f32:0, {0.25, 0.5}>> loc("w/codes")
  %w1 = circle.dequantize(%w) : (tensor<2x4x!quant.uniform<i8:f32:0, {0.25, 0.5}>>) -> tensor<2x4xf32> loc("w")
  %q = circle.quantize(%x) : (tensor<1x4xf32>) -> tensor<1x4x!quant.uniform<u8:f32, 0.5:128>>
  %d = circle.dequantize(%q) : (tensor<1x4x!quant.uniform<u8:f32, 0.5:128>>) -> tensor<1x4xf32>
  %0 = circle.fully_connected(%d, %w1, %b) : (tensor<1x4xf32>, tensor<2x4xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("y")
  %1 = circle.quantize(%0) : (tensor<1x2xf32>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
  %2 = circle.dequantize(%1) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2xf32>
  %3 = circle.fake_quant(%2) {min = -1.0, max = 3.0, num_bits = 8} : (tensor<1x2xf32>) -> tensor<1x2xf32> loc("out")
  func.return %3 : tensor<1x2xf32>
}
// CHECK: quant.given = {
// CHECK-NEXT: w = !quant.uniform<i8:f32:0, {0.25, 0.5}>,
// CHECK-NEXT: x = !quant.uniform<u8:f32, 0.5:128>,
// CHECK-NEXT: out = !quant.uniform<i8:f32, 0.01568627{{[0-9]*}}:-64>
// CHECK: %[[W:.*]] = circle.dequantize
// CHECK-NEXT: %[[OUT:.*]] = circle.fully_connected(%x, %[[W]], %b) : {{.*}} loc("out")
// CHECK-NEXT: func.return %[[OUT]]

// -----

// Codes that somebody else reads, too, a grid of 4 bits, and codes by channel of what is computed stay.
func.func @main(%x: tensor<1x4xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>) {
  %q = circle.quantize(%x) : (tensor<1x4xf32>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>
  %d = circle.dequantize(%q) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4xf32>
  %f = circle.fake_quant(%x) {min = -1.0, max = 3.0, num_bits = 4} : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %p = circle.quantize(%x) : (tensor<1x4xf32>) -> tensor<1x4x!quant.uniform<i8:f32:1, {0.25, 0.5, 0.25, 0.5}>>
  %e = circle.dequantize(%p) : (tensor<1x4x!quant.uniform<i8:f32:1, {0.25, 0.5, 0.25, 0.5}>>) -> tensor<1x4xf32>
  func.return %d, %f, %e, %q : tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-NOT: quant.given
// CHECK: circle.quantize
// CHECK: circle.fake_quant
// CHECK: circle.quantize
// CHECK: circle.dequantize

// -----

// Operands of moves and limits have the type of the result, unless another operator reads them.
func.func @main(%x: tensor<1x1x2x4xf32> loc("x"), %p: tensor<4xi32>) -> (tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>, tensor<1x1x2x4xf32>) {
  %0 = circle.exp(%x) : (tensor<1x1x2x4xf32>) -> tensor<1x1x2x4xf32> loc("exp")
  %1 = circle.transpose(%0, %p) : (tensor<1x1x2x4xf32>, tensor<4xi32>) -> tensor<1x4x1x2xf32> loc("moved")
  %2 = circle.relu(%1) : (tensor<1x4x1x2xf32>) -> tensor<1x4x1x2xf32> loc("relu")
  %3 = circle.quantize(%2) : (tensor<1x4x1x2xf32>) -> tensor<1x4x1x2x!quant.uniform<i8:f32, 0.5:-128>>
  %4 = circle.dequantize(%3) : (tensor<1x4x1x2x!quant.uniform<i8:f32, 0.5:-128>>) -> tensor<1x4x1x2xf32> loc("a")
  %5 = circle.sin(%x) : (tensor<1x1x2x4xf32>) -> tensor<1x1x2x4xf32> loc("sin")
  %6 = circle.transpose(%5, %p) : (tensor<1x1x2x4xf32>, tensor<4xi32>) -> tensor<1x4x1x2xf32> loc("sin moved")
  %7 = circle.quantize(%6) : (tensor<1x4x1x2xf32>) -> tensor<1x4x1x2x!quant.uniform<i8:f32, 0.25:3>>
  %8 = circle.dequantize(%7) : (tensor<1x4x1x2x!quant.uniform<i8:f32, 0.25:3>>) -> tensor<1x4x1x2xf32> loc("b")
  func.return %4, %8, %5 : tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>, tensor<1x1x2x4xf32>
}
// CHECK: quant.given = {
// CHECK-NEXT: a = !quant.uniform<i8:f32, 0.5:-128>,
// CHECK-NEXT: b = !quant.uniform<i8:f32, 0.25:3>,
// CHECK-NEXT: moved = !quant.uniform<i8:f32, 0.5:-128>,
// CHECK-NEXT: exp = !quant.uniform<i8:f32, 0.5:-128>
// CHECK-NEXT: }

// -----

// A second rounding to other codes stays, for the quantiser to make a QUANTIZE of codes; one to the same codes goes.
func.func @main(%x: tensor<4xf32> loc("x")) -> tensor<4xf32> {
  %0 = circle.quantize(%x) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
  %1 = circle.dequantize(%0) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4xf32>
  %2 = circle.quantize(%1) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
  %3 = circle.dequantize(%2) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4xf32>
  %4 = circle.quantize(%3) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.25>>
  %5 = circle.dequantize(%4) : (tensor<4x!quant.uniform<i8:f32, 0.25>>) -> tensor<4xf32> loc("again")
  %6 = circle.exp(%5) : (tensor<4xf32>) -> tensor<4xf32> loc("y")
  func.return %6 : tensor<4xf32>
}
// CHECK: quant.given = {x = !quant.uniform<i8:f32, 0.5:3>, again = !quant.uniform<i8:f32, 0.25>}
// CHECK: %[[Q:.*]] = circle.quantize(%x) : {{.*}} -> tensor<4x!quant.uniform<i8:f32, 0.25>>
// CHECK-NEXT: %[[D:.*]] = circle.dequantize(%[[Q]])
// CHECK-NEXT: circle.exp(%[[D]])
