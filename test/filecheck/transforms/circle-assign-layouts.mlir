// RUN: odc-opt %s --split-input-file --circle-assign-layouts | filecheck %s

// Channels first between two operators that work channels last: the constant is reshaped, both TRANSPOSEs go.
func.func @between(%x: tensor<1x4x4x2xf32>) -> tensor<1x1x1x2xf32> {
  %p = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %q = circle.const [0, 2, 3, 1] : tensor<4xi32>
  %gamma = circle.const [2.0, 3.0] : tensor<1x2x1x1xf32>
  %0 = circle.max_pool_2d(%x) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x4x4x2xf32>) -> tensor<1x2x2x2xf32>
  %1 = circle.transpose(%0, %p) : (tensor<1x2x2x2xf32>, tensor<4xi32>) -> tensor<1x2x2x2xf32>
  %2 = circle.mul(%1, %gamma) : (tensor<1x2x2x2xf32>, tensor<1x2x1x1xf32>) -> tensor<1x2x2x2xf32>
  %3 = circle.transpose(%2, %q) : (tensor<1x2x2x2xf32>, tensor<4xi32>) -> tensor<1x2x2x2xf32>
  %4 = circle.max_pool_2d(%3) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x2x2x2xf32>) -> tensor<1x1x1x2xf32>
  func.return %4 : tensor<1x1x1x2xf32>
}
// CHECK-LABEL: func.func @between(
// CHECK: %[[A:.*]] = circle.max_pool_2d
// CHECK-NEXT: %[[G:.*]] = circle.const [2.0, 3.0] : tensor<1x1x1x2xf32>
// CHECK-NEXT: %[[B:.*]] = circle.mul(%[[A]], %[[G]])
// CHECK-NEXT: circle.max_pool_2d(%[[B]])

// -----

// Axes and rows of padding follow the order; the mean over a map leaves nothing to turn back.
func.func @axes(%x: tensor<1x5x4x2xf32>) -> tensor<1x5xf32> {
  %p = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %rows = circle.const [0, 0, 1, 2, 3, 4, 5, 6] : tensor<4x2xi32>
  %axes = circle.const [2, -1] : tensor<2xi32>
  %0 = circle.max_pool_2d(%x) {padding = valid, stride = [1, 1], filter = [1, 1]} : (tensor<1x5x4x2xf32>) -> tensor<1x5x4x2xf32>
  %1 = circle.transpose(%0, %p) : (tensor<1x5x4x2xf32>, tensor<4xi32>) -> tensor<1x2x5x4xf32>
  %2 = circle.pad(%1, %rows) : (tensor<1x2x5x4xf32>, tensor<4x2xi32>) -> tensor<1x5x12x15xf32>
  %3 = circle.mean(%2, %axes) : (tensor<1x5x12x15xf32>, tensor<2xi32>) -> tensor<1x5xf32>
  func.return %3 : tensor<1x5xf32>
}
// CHECK-LABEL: func.func @axes(
// CHECK: %[[A:.*]] = circle.max_pool_2d
// CHECK-NEXT: %[[ROWS:.*]] = circle.const [0, 0, 3, 4, 5, 6, 1, 2] : tensor<4x2xi32>
// CHECK-NEXT: %[[B:.*]] = circle.pad(%[[A]], %[[ROWS]]) : (tensor<1x5x4x2xf32>, tensor<4x2xi32>) -> tensor<1x12x15x5xf32>
// CHECK-NEXT: %[[AXES:.*]] = circle.const [1, 2] : tensor<2xi32>
// CHECK-NEXT: %[[C:.*]] = circle.mean(%[[B]], %[[AXES]])
// CHECK-NEXT: func.return %[[C]]

// -----

// A swap of the last two dimensions becomes the flag of a product.
func.func @product(%x: tensor<2x3x4xf32>, %y: tensor<2x5x4xf32>) -> tensor<2x3x5xf32> {
  %p = circle.const [0, 2, 1] : tensor<3xi32>
  %0 = circle.transpose(%y, %p) : (tensor<2x5x4xf32>, tensor<3xi32>) -> tensor<2x4x5xf32>
  %1 = circle.batch_matmul(%x, %0) : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  func.return %1 : tensor<2x3x5xf32>
}
// CHECK-LABEL: func.func @product(
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x3x4xf32>, %[[Y:[^:]*]]:
// CHECK: circle.batch_matmul(%[[X]], %[[Y]]) {adjoint_rhs = true}

// -----

// One TRANSPOSE behind a sum is better than one before each operand; RESHAPE that keeps dimensions whole lets it through.
func.func @once(%x: tensor<1x4x4x2xf32>, %y: tensor<1x4x4x2xf32>) -> tensor<1x2x16xf32> {
  %p = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %s = circle.const [1, 2, 16] : tensor<3xi32>
  %0 = circle.transpose(%x, %p) : (tensor<1x4x4x2xf32>, tensor<4xi32>) -> tensor<1x2x4x4xf32>
  %1 = circle.transpose(%y, %p) : (tensor<1x4x4x2xf32>, tensor<4xi32>) -> tensor<1x2x4x4xf32>
  %2 = circle.add(%0, %1) : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %3 = circle.reshape(%2, %s) {new_shape = [1, 2, 16]} : (tensor<1x2x4x4xf32>, tensor<3xi32>) -> tensor<1x2x16xf32>
  func.return %3 : tensor<1x2x16xf32>
}
// CHECK-LABEL: func.func @once(
// CHECK: circle.add({{.*}}) : (tensor<1x4x4x2xf32>, tensor<1x4x4x2xf32>) -> tensor<1x4x4x2xf32>
// CHECK: circle.transpose
// CHECK-NOT: circle.transpose
// CHECK: func.return

// -----

// Left alone: softmax works along the last dimension, which the order of the pool's result does not keep.
func.func @softmax(%x: tensor<1x4x4x2xf32>) -> tensor<1x2x4x4xf32> {
  %p = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %0 = circle.max_pool_2d(%x) {padding = valid, stride = [1, 1], filter = [1, 1]} : (tensor<1x4x4x2xf32>) -> tensor<1x4x4x2xf32>
  %1 = circle.transpose(%0, %p) : (tensor<1x4x4x2xf32>, tensor<4xi32>) -> tensor<1x2x4x4xf32>
  %2 = circle.softmax(%1) {beta = 1.0} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  func.return %2 : tensor<1x2x4x4xf32>
}
// CHECK-LABEL: func.func @softmax(
// CHECK: %[[T:.*]] = circle.transpose
// CHECK: circle.softmax(%[[T]])

// -----

// Beside a conversion the fewest bytes are moved: integers, not real numbers on the other side.
func.func @converted(%x: tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> {
  %p = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %q = circle.const [0, 2, 3, 1] : tensor<4xi32>
  %0 = circle.transpose(%x, %q) : (tensor<1x2x4x4xf32>, tensor<4xi32>) -> tensor<1x4x4x2xf32>
  %1 = circle.quantize(%0) : (tensor<1x4x4x2xf32>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  %2 = circle.max_pool_2d(%1) {padding = same, stride = [1, 1], filter = [2, 2]} : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  %3 = circle.dequantize(%2) : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2xf32>
  %4 = circle.transpose(%3, %p) : (tensor<1x4x4x2xf32>, tensor<4xi32>) -> tensor<1x2x4x4xf32>
  func.return %4 : tensor<1x2x4x4xf32>
}
// CHECK-LABEL: func.func @converted(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: %[[CODES:.*]] = circle.quantize(%[[X]])
// CHECK: %[[A:.*]] = circle.transpose(%[[CODES]],
// CHECK: %[[B:.*]] = circle.max_pool_2d(%[[A]])
// CHECK: %[[C:.*]] = circle.transpose(%[[B]],
// CHECK: %[[D:.*]] = circle.dequantize(%[[C]])
// CHECK-NEXT: func.return %[[D]]
