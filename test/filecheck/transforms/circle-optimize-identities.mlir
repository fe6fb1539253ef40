// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=remove_unnecessary_add,remove_unnecessary_cast,remove_unnecessary_reshape,remove_unnecessary_transpose,remove_unnecessary_slice,remove_unnecessary_strided_slice,remove_unnecessary_split,remove_unnecessary_mul,remove_unnecessary_div' | filecheck %s

func.func @remove_unnecessary_add(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0.0] : tensor<1xf32>
  %2 = circle.add(%0, %1) : (tensor<1x4x5x3xf32>, tensor<1xf32>) -> tensor<1x4x5x3xf32>
  %3 = circle.relu(%2) : (tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %3 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_add(
// CHECK-NOT: circle.add(
// CHECK: circle.relu({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_add_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [0.5] : tensor<1xf32>
  %2 = circle.add(%0, %1) : (tensor<1x4x5x3xf32>, tensor<1xf32>) -> tensor<1x4x5x3xf32>
  %3 = circle.relu(%2) : (tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %3 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_add_not(
// CHECK: circle.add({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.relu({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_cast(%0: tensor<2xf32>) -> tensor<2xf32> {
  %1 = circle.cast(%0) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = circle.relu(%1) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %2 : tensor<2xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_cast(
// CHECK-NOT: circle.cast(
// CHECK: circle.relu({{.*}} -> tensor<2xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_cast_not(%0: tensor<1xi32>) -> tensor<1xf32> {
  %1 = circle.cast(%0) {in_data_type = int32} : (tensor<1xi32>) -> tensor<1xf32>
  func.return %1 : tensor<1xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_cast_not(
// CHECK: circle.cast({{.*}} -> tensor<1xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_reshape(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [2, 3] : tensor<2xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [2, 3]} : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<2x3xf32>
  %3 = circle.relu(%2) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %3 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_reshape(
// CHECK-NOT: circle.reshape(
// CHECK: circle.relu({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_reshape_not(%0: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %1 = circle.const [3, 2] : tensor<2xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [3, 2]} : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<3x2xf32>
  %3 = circle.relu(%2) : (tensor<3x2xf32>) -> tensor<3x2xf32>
  func.return %3 : tensor<3x2xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_reshape_not(
// CHECK: circle.reshape({{.*}} -> tensor<3x2xf32>
// CHECK: circle.relu({{.*}} -> tensor<3x2xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_transpose(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [0, 1] : tensor<2xi32>
  %2 = circle.transpose(%0, %1) : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<2x3xf32>
  %3 = circle.relu(%2) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %3 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_transpose(
// CHECK-NOT: circle.transpose(
// CHECK: circle.relu({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_transpose_not(%0: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %1 = circle.const [1, 0] : tensor<2xi32>
  %2 = circle.transpose(%0, %1) : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<3x2xf32>
  %3 = circle.relu(%2) : (tensor<3x2xf32>) -> tensor<3x2xf32>
  func.return %3 : tensor<3x2xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_transpose_not(
// CHECK: circle.transpose({{.*}} -> tensor<3x2xf32>
// CHECK: circle.relu({{.*}} -> tensor<3x2xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_slice(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [0, 0] : tensor<2xi32>
  %2 = circle.const [2, 3] : tensor<2xi32>
  %3 = circle.slice(%0, %1, %2) : (tensor<2x3xf32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x3xf32>
  %4 = circle.relu(%3) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %4 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_slice(
// CHECK-NOT: circle.slice(
// CHECK: circle.relu({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_slice_not(%0: tensor<2x3xf32>) -> tensor<2x2xf32> {
  %1 = circle.const [0, 1] : tensor<2xi32>
  %2 = circle.const [2, 2] : tensor<2xi32>
  %3 = circle.slice(%0, %1, %2) : (tensor<2x3xf32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x2xf32>
  %4 = circle.relu(%3) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %4 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_slice_not(
// CHECK: circle.slice({{.*}} -> tensor<2x2xf32>
// CHECK: circle.relu({{.*}} -> tensor<2x2xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_strided_slice(%0: tensor<4xf32>) -> tensor<4xf32> {
  %1 = circle.const [0] : tensor<1xi32>
  %2 = circle.const [4] : tensor<1xi32>
  %3 = circle.const [1] : tensor<1xi32>
  %4 = circle.strided_slice(%0, %1, %2, %3) : (tensor<4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xf32>
  %5 = circle.relu(%4) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %5 : tensor<4xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_strided_slice(
// CHECK-NOT: circle.strided_slice(
// CHECK: circle.relu({{.*}} -> tensor<4xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_strided_slice_not(%0: tensor<4xf32>) -> tensor<4xf32> {
  %1 = circle.const [-1] : tensor<1xi32>
  %2 = circle.const [-5] : tensor<1xi32>
  %3 = circle.const [-1] : tensor<1xi32>
  %4 = circle.strided_slice(%0, %1, %2, %3) : (tensor<4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xf32>
  %5 = circle.relu(%4) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %5 : tensor<4xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_strided_slice_not(
// CHECK: circle.strided_slice({{.*}} -> tensor<4xf32>
// CHECK: circle.relu({{.*}} -> tensor<4xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_split(%0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %1 = circle.const [1] : tensor<1xi32>
  %2 = circle.split(%1, %0) {num_splits = 1} : (tensor<1xi32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %3 = circle.relu(%2) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %3 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_split(
// CHECK-NOT: circle.split(
// CHECK: circle.relu({{.*}} -> tensor<2x4xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_split_not(%0: tensor<2x4xf32>) -> tensor<2x2xf32> {
  %1 = circle.const [1] : tensor<1xi32>
  %2, %3 = circle.split(%1, %0) {num_splits = 2} : (tensor<1xi32>, tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
  %4 = circle.add(%2, %3) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %4 : tensor<2x2xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_split_not(
// CHECK: circle.split({{.*}} -> (tensor<2x2xf32>, tensor<2x2xf32>)
// CHECK: circle.add({{.*}} -> tensor<2x2xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_mul(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [1.0] : tensor<1xf32>
  %2 = circle.mul(%0, %1) : (tensor<1x4x5x3xf32>, tensor<1xf32>) -> tensor<1x4x5x3xf32>
  %3 = circle.relu(%2) : (tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %3 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_mul(
// CHECK-NOT: circle.mul(
// CHECK: circle.relu({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_mul_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [1.5] : tensor<1xf32>
  %2 = circle.mul(%0, %1) : (tensor<1x4x5x3xf32>, tensor<1xf32>) -> tensor<1x4x5x3xf32>
  %3 = circle.relu(%2) : (tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %3 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_mul_not(
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.relu({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_div(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [1.0] : tensor<1xf32>
  %2 = circle.div(%0, %1) : (tensor<1x4x5x3xf32>, tensor<1xf32>) -> tensor<1x4x5x3xf32>
  %3 = circle.relu(%2) : (tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %3 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_div(
// CHECK-NOT: circle.div(
// CHECK: circle.relu({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @remove_unnecessary_div_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [1.5] : tensor<1xf32>
  %2 = circle.div(%0, %1) : (tensor<1x4x5x3xf32>, tensor<1xf32>) -> tensor<1x4x5x3xf32>
  %3 = circle.relu(%2) : (tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  func.return %3 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @remove_unnecessary_div_not(
// CHECK: circle.div({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.relu({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return
