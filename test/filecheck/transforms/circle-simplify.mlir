// RUN: odc-opt %s --split-input-file --circle-simplify | filecheck %s

// Permutations that undo each other, padding by nothing, a view of a view.
func.func @chain(%x: tensor<1x2x2x4xi8>) -> tensor<4x4xi8> {
  %p = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %q = circle.const [0, 2, 3, 1] : tensor<4xi32>
  %none = circle.const [0, 0, 0, 0, 0, 0, 0, 0] : tensor<4x2xi32>
  %s = circle.const [1, 16] : tensor<2xi32>
  %t = circle.const [4, 4] : tensor<2xi32>
  %0 = circle.transpose(%x, %p) : (tensor<1x2x2x4xi8>, tensor<4xi32>) -> tensor<1x4x2x2xi8>
  %1 = circle.transpose(%0, %q) : (tensor<1x4x2x2xi8>, tensor<4xi32>) -> tensor<1x2x2x4xi8>
  %2 = circle.pad(%1, %none) : (tensor<1x2x2x4xi8>, tensor<4x2xi32>) -> tensor<1x2x2x4xi8>
  %3 = circle.reshape(%2, %s) {new_shape = [1, 16]} : (tensor<1x2x2x4xi8>, tensor<2xi32>) -> tensor<1x16xi8>
  %4 = circle.reshape(%3, %t) {new_shape = [4, 4]} : (tensor<1x16xi8>, tensor<2xi32>) -> tensor<4x4xi8>
  func.return %4 : tensor<4x4xi8>
}
// CHECK-LABEL: func.func @chain(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: %[[T:.*]] = circle.const [4, 4]
// CHECK-NEXT: %[[Y:.*]] = circle.reshape(%[[X]], %[[T]])
// CHECK-NEXT: func.return %[[Y]]

// -----

// The extents of a view are those of its operand, whatever the type of the result leaves open.
func.func @open(%x: tensor<1x2x3x4xf32>) -> tensor<?x1x3x4xf32> {
  %p = circle.const [1, 0, 2, 3] : tensor<4xi32>
  %0 = circle.transpose(%x, %p) : (tensor<1x2x3x4xf32>, tensor<4xi32>) -> tensor<?x1x3x4xf32>
  func.return %0 : tensor<?x1x3x4xf32>
}
// CHECK-LABEL: func.func @open(
// CHECK: circle.const [2, 1, 3, 4]
// CHECK-NEXT: circle.reshape({{.*}}) {new_shape = [2, 1, 3, 4]}

// -----

// Two permutations in a row are one; one that moves extents of 1 only is a view.
func.func @transposes(%x: tensor<1x2x3x4xf32>) -> (tensor<4x1x3x2xf32>, tensor<2x3x1x4xf32>) {
  %p = circle.const [0, 2, 1, 3] : tensor<4xi32>
  %q = circle.const [3, 0, 1, 2] : tensor<4xi32>
  %r = circle.const [1, 2, 0, 3] : tensor<4xi32>
  %0 = circle.transpose(%x, %p) : (tensor<1x2x3x4xf32>, tensor<4xi32>) -> tensor<1x3x2x4xf32>
  %1 = circle.transpose(%0, %q) : (tensor<1x3x2x4xf32>, tensor<4xi32>) -> tensor<4x1x3x2xf32>
  %2 = circle.transpose(%x, %r) : (tensor<1x2x3x4xf32>, tensor<4xi32>) -> tensor<2x3x1x4xf32>
  func.return %1, %2 : tensor<4x1x3x2xf32>, tensor<2x3x1x4xf32>
}
// CHECK-LABEL: func.func @transposes(
// CHECK: %[[P:.*]] = circle.const [3, 0, 2, 1] : tensor<4xi32>
// CHECK-NEXT: circle.transpose(%{{.*}}, %[[P]])
// CHECK: %[[S:.*]] = circle.const [2, 3, 1, 4] : tensor<4xi32>
// CHECK-NEXT: circle.reshape(%{{.*}}, %[[S]]) {new_shape = [2, 3, 1, 4]}

// -----

// Neutral constants, casts and slices that change nothing.
func.func @nothing(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %zero = circle.const [0.0] : tensor<f32>
  %ones = circle.const [1.0, 1.0, 1.0, 1.0] : tensor<4xf32>
  %b = circle.const [0, 0] : tensor<2xi32>
  %e = circle.const [2, 4] : tensor<2xi32>
  %u = circle.const [1, 1] : tensor<2xi32>
  %0 = circle.add(%zero, %x) : (tensor<f32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = circle.div(%0, %ones) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %2 = circle.cast(%1) {in_data_type = float32, out_data_type = float32} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %3 = circle.strided_slice(%2, %b, %e, %u) : (tensor<2x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x4xf32>
  %4 = circle.concatenation(%3) {axis = 0} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %5 = circle.relu(%4) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %5 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @nothing(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK-NEXT: circle.relu(%[[X]])

// -----

// An image that keeps its size.
func.func @resized(%x: tensor<1x2x3x1xf32>) -> tensor<1x2x3x1xf32> {
  %size = circle.const [2, 3] : tensor<2xi32>
  %0 = circle.resize_bilinear(%x, %size) {half_pixel_centers = true} : (tensor<1x2x3x1xf32>, tensor<2xi32>) -> tensor<1x2x3x1xf32>
  %1 = circle.resize_nearest_neighbor(%0, %size) {align_corners = true} : (tensor<1x2x3x1xf32>, tensor<2xi32>) -> tensor<1x2x3x1xf32>
  %2 = circle.relu(%1) : (tensor<1x2x3x1xf32>) -> tensor<1x2x3x1xf32>
  func.return %2 : tensor<1x2x3x1xf32>
}
// CHECK-LABEL: func.func @resized(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK-NEXT: circle.relu(%[[X]])

// -----

// Left alone: what the function returns, clamps, slices backwards, sums of codes, quotients with 1 on the left.
func.func @left(%x: tensor<4xf32>, %q: tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x!quant.uniform<i8:f32, 0.5:3>>, tensor<4xf32>) {
  %zero = circle.const [0.0] : tensor<f32>
  %one = circle.const [1.0] : tensor<f32>
  %b = circle.const [-1] : tensor<1xi32>
  %e = circle.const [-5] : tensor<1xi32>
  %back = circle.const [-1] : tensor<1xi32>
  %qz = circle.const [0] : tensor<1x!quant.uniform<i8:f32, 0.5:3>>
  %0 = circle.add(%x, %zero) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = circle.mul(%x, %one) {activation = relu} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = circle.abs(%1) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = circle.strided_slice(%x, %b, %e, %back) : (tensor<4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xf32>
  %4 = circle.abs(%3) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = circle.add(%q, %qz) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
  %6 = circle.relu(%5) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
  %7 = circle.div(%one, %x) : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %8 = circle.abs(%7) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %0, %2, %4, %6, %8 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x!quant.uniform<i8:f32, 0.5:3>>, tensor<4xf32>
}
// CHECK-LABEL: func.func @left(
// CHECK: circle.add
// CHECK: circle.mul
// CHECK: circle.strided_slice
// CHECK: circle.add
// CHECK: circle.div

// -----

// QUANTIZE to the parameters that the codes have is nothing; to others it is a rescaling.
func.func @quantize(%q: tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> (tensor<4x!quant.uniform<i8:f32, 0.5:3>>, tensor<4x!quant.uniform<i8:f32, 0.5:4>>) {
  %0 = circle.quantize(%q) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
  %1 = circle.relu(%0) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
  %2 = circle.quantize(%q) : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.5:4>>
  %3 = circle.relu(%2) : (tensor<4x!quant.uniform<i8:f32, 0.5:4>>) -> tensor<4x!quant.uniform<i8:f32, 0.5:4>>
  func.return %1, %3 : tensor<4x!quant.uniform<i8:f32, 0.5:3>>, tensor<4x!quant.uniform<i8:f32, 0.5:4>>
}
// CHECK-LABEL: func.func @quantize(
// CHECK-SAME: %[[Q:[^:]*]]:
// CHECK-NEXT: circle.relu(%[[Q]])
// CHECK-NEXT: circle.quantize(%[[Q]])

// -----

// Columns of weights take the order of a flattened image, so that the TRANSPOSE goes.
func.func @order_of_rows(%x: tensor<1x1x2x3xf32>) -> tensor<1x1xf32> {
  %p = circle.const [0, 1, 3, 2] : tensor<4xi32>
  %s = circle.const [1, 6] : tensor<2xi32>
  %w = circle.const [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] : tensor<1x6xf32>
  %n = circle.none
  %0 = circle.transpose(%x, %p) : (tensor<1x1x2x3xf32>, tensor<4xi32>) -> tensor<1x1x3x2xf32>
  %1 = circle.reshape(%0, %s) {new_shape = [1, 6]} : (tensor<1x1x3x2xf32>, tensor<2xi32>) -> tensor<1x6xf32>
  %2 = circle.fully_connected(%1, %w, %n) : (tensor<1x6xf32>, tensor<1x6xf32>, none) -> tensor<1x1xf32>
  func.return %2 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @order_of_rows(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: %[[FLAT:.*]] = circle.reshape(%[[X]],
// CHECK: %[[W:.*]] = circle.const [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]
// CHECK-NEXT: circle.fully_connected(%[[FLAT]], %[[W]],

// -----

// No code is below the lowest.
func.func @lowest(%x: tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>> {
  %low = circle.const [-128] : tensor<1x!quant.uniform<i8:f32, 0.5:3>>
  %next = circle.const [-127] : tensor<1x!quant.uniform<i8:f32, 0.5:3>>
  %0 = circle.maximum(%low, %x) : (tensor<1x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
  %1 = circle.maximum(%0, %next) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
  %2 = circle.minimum(%1, %low) : (tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
  func.return %2 : tensor<1x2x!quant.uniform<i8:f32, 0.5:3>>
}
// CHECK-LABEL: func.func @lowest(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: %[[Y:.*]] = circle.maximum(%[[X]],
// CHECK-NEXT: circle.minimum(%[[Y]],

// -----

// Parts of a dequantised value are parts of its codes.
func.func @codes(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>) -> (tensor<1x2xf32>, tensor<1x2xf32>) {
  %axis = circle.const [1] : tensor<i32>
  %0 = circle.dequantize(%x) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4xf32>
  %1, %s = circle.split(%axis, %0) {num_splits = 2} : (tensor<i32>, tensor<1x4xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>)
  %2 = circle.abs(%1) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  %3 = circle.relu(%s) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %2, %3 : tensor<1x2xf32>, tensor<1x2xf32>
}
// CHECK-LABEL: func.func @codes(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: %[[A:.*]], %[[B:.*]] = circle.split({{.*}}, %[[X]])
// CHECK-DAG: %[[C:.*]] = circle.dequantize(%[[A]])
// CHECK-DAG: %[[D:.*]] = circle.dequantize(%[[B]])
// CHECK-DAG: circle.abs(%[[C]])
// CHECK-DAG: circle.relu(%[[D]])

// -----

// Left alone: a layer reads the floats, the pair states how to quantise a float model, the operands' units differ.
func.func @floats(%x: tensor<1x4xf32>, %y: tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>, %z: tensor<1x4x!quant.uniform<i8:f32, 0.25:3>>) -> (tensor<4x4xf32>, tensor<1x4xf32>, tensor<1x8xf32>) {
  %p = circle.const [1] : tensor<1xi32>
  %0 = circle.dequantize(%y) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4xf32>
  %1 = circle.reverse_v2(%0, %p) : (tensor<1x4xf32>, tensor<1xi32>) -> tensor<1x4xf32>
  %2 = circle.batch_matmul(%1, %1) {adjoint_lhs = true} : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<4x4xf32>
  %3 = circle.quantize(%x) : (tensor<1x4xf32>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>
  %4 = circle.dequantize(%3) : (tensor<1x4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x4xf32>
  %5 = circle.reverse_v2(%4, %p) : (tensor<1x4xf32>, tensor<1xi32>) -> tensor<1x4xf32>
  %6 = circle.relu(%5) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %7 = circle.dequantize(%z) : (tensor<1x4x!quant.uniform<i8:f32, 0.25:3>>) -> tensor<1x4xf32>
  %8 = circle.concatenation(%0, %7) {axis = 1} : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x8xf32>
  %9 = circle.relu(%8) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  func.return %2, %6, %9 : tensor<4x4xf32>, tensor<1x4xf32>, tensor<1x8xf32>
}
// CHECK-LABEL: func.func @floats(
// CHECK: %[[R:.*]] = circle.reverse_v2({{.*}} -> tensor<1x4xf32>
// CHECK-NEXT: circle.batch_matmul(%[[R]], %[[R]])
// CHECK: circle.quantize
// CHECK-NEXT: circle.dequantize
// CHECK-NEXT: circle.reverse_v2
// CHECK: circle.dequantize
// CHECK-NEXT: circle.concatenation

// -----

// A search gives the index type that its reader wants, unless another operator reads the indices.
func.func @index_type(%x: tensor<2x4xf32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<2xi64>) {
  %a = circle.const [1] : tensor<1xi32>
  %0 = circle.arg_max(%x, %a) {output_type = int64} : (tensor<2x4xf32>, tensor<1xi32>) -> tensor<2xi64>
  %1 = circle.cast(%0) {in_data_type = int64, out_data_type = int32} : (tensor<2xi64>) -> tensor<2xi32> loc("index")
  %2 = circle.arg_min(%x, %a) {output_type = int64} : (tensor<2x4xf32>, tensor<1xi32>) -> tensor<2xi64>
  %3 = circle.cast(%2) {in_data_type = int64, out_data_type = int32} : (tensor<2xi64>) -> tensor<2xi32>
  func.return %1, %3, %2 : tensor<2xi32>, tensor<2xi32>, tensor<2xi64>
}
// CHECK-LABEL: func.func @index_type(
// CHECK-NOT: circle.cast
// CHECK: circle.arg_max(%x, %a) {output_type = int32} : (tensor<2x4xf32>, tensor<1xi32>) -> tensor<2xi32> loc("index")
// CHECK: circle.arg_min(%x, %a) {output_type = int64}
// CHECK: circle.cast
