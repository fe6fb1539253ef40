// RUN: odc-opt %s --split-input-file -p "odc-set-target,npu-mark-supported,npu-form-groups,npu-choose-segments{strategy=supported},npu-form-segments,npu-outline-segments,convert-circle-to-npu" | filecheck %s

// A transposed right matrix is moved, the leading axes are images, and the zero points go along.
func.func @scores(%q: tensor<2x3x5x8x!quant.uniform<i8:f32, 0.5:-3>>, %k: tensor<2x3x6x8x!quant.uniform<i8:f32, 0.5:4>>) -> tensor<2x3x5x6x!quant.uniform<i8:f32, 0.25:1>> {
  %y = circle.batch_matmul(%q, %k) {adjoint_lhs = false, adjoint_rhs = true} : (tensor<2x3x5x8x!quant.uniform<i8:f32, 0.5:-3>>, tensor<2x3x6x8x!quant.uniform<i8:f32, 0.5:4>>) -> tensor<2x3x5x6x!quant.uniform<i8:f32, 0.25:1>>
  func.return %y : tensor<2x3x5x6x!quant.uniform<i8:f32, 0.25:1>>
}
// CHECK-LABEL: func.func @scores(
// CHECK: npu.program @segment_0
// CHECK: %[[Q:.*]] = npu.reshape %{{.*}} -> tensor<6x1x5x8x
// CHECK-NEXT: %[[K:.*]] = npu.move %{{.*}} -> tensor<6x1x8x6x
// CHECK-NEXT: %[[Y:.*]] = npu.matmul %[[Q]], %[[K]] a_zero -3 b_zero 4 out_zero 1 scale <1073741824, 1> clamp(-128, 127)
// CHECK-NEXT: npu.reshape %[[Y]]

// -----

// A row times a transposed matrix is the matrix, which stays as it lies, times a column.
func.func @row(%q: tensor<3x1x8x!quant.uniform<i8:f32, 0.5:-3>>, %k: tensor<3x6x8x!quant.uniform<i8:f32, 0.5:4>>) -> tensor<3x1x6x!quant.uniform<i8:f32, 0.25:1>> {
  %y = circle.batch_matmul(%q, %k) {adjoint_lhs = false, adjoint_rhs = true} : (tensor<3x1x8x!quant.uniform<i8:f32, 0.5:-3>>, tensor<3x6x8x!quant.uniform<i8:f32, 0.5:4>>) -> tensor<3x1x6x!quant.uniform<i8:f32, 0.25:1>>
  func.return %y : tensor<3x1x6x!quant.uniform<i8:f32, 0.25:1>>
}
// CHECK-LABEL: func.func @row(
// CHECK: npu.program @segment_0(%[[A:.*]]: tensor<3x1x8x{{.*}}, %[[B:.*]]: tensor<3x6x8x
// CHECK: %[[K:.*]] = npu.reshape %[[B]] {{.*}} -> tensor<3x1x6x8x
// CHECK-NEXT: %[[Q:.*]] = npu.reshape %[[A]] {{.*}} -> tensor<3x1x8x1x
// CHECK-NEXT: %[[Y:.*]] = npu.matmul %[[K]], %[[Q]] a_zero 4 b_zero -3 out_zero 1 {{.*}} -> tensor<3x1x6x1x
// CHECK-NEXT: npu.reshape %[[Y]]

// -----

// One right matrix for all left ones: they are its rows.
func.func @one(%a: tensor<2x3x5x8x!quant.uniform<i8:f32, 0.5>>, %b: tensor<8x6x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x3x5x6x!quant.uniform<i8:f32, 0.25>> {
  %y = circle.batch_matmul(%a, %b) {adjoint_lhs = false, adjoint_rhs = false} : (tensor<2x3x5x8x!quant.uniform<i8:f32, 0.5>>, tensor<8x6x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x3x5x6x!quant.uniform<i8:f32, 0.25>>
  func.return %y : tensor<2x3x5x6x!quant.uniform<i8:f32, 0.25>>
}
// CHECK-LABEL: func.func @one(
// CHECK: npu.matmul {{.*}} : tensor<1x1x30x8x{{.*}}, tensor<1x1x8x6x{{.*}} -> tensor<1x1x30x6x

// -----

// A constant one is weights, transposed when compiling.
func.func @constant(%a: tensor<2x5x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x5x3x!quant.uniform<i8:f32, 0.25>> {
  %b = circle.const #circle.blob<"0x010203040506"> : tensor<2x3x!quant.uniform<i8:f32:1, {0.5, 0.25, 0.125}>>
  %y = circle.batch_matmul(%a, %b) {adjoint_lhs = false, adjoint_rhs = false} : (tensor<2x5x2x!quant.uniform<i8:f32, 0.5>>, tensor<2x3x!quant.uniform<i8:f32:1, {0.5, 0.25, 0.125}>>) -> tensor<2x5x3x!quant.uniform<i8:f32, 0.25>>
  func.return %y : tensor<2x5x3x!quant.uniform<i8:f32, 0.25>>
}
// CHECK-LABEL: func.func @constant(
// CHECK: npu.conv {{.*}} weights <"0x010402050306"> i8 {{.*}} multiplier <1073741824, 1073741824, 1073741824> exponent <1, 0, -1>
