// RUN: odc-opt %s --split-input-file --circle-equalize-channels | filecheck %s
// RUN: odc-opt %s --split-input-file --circle-equalize-channels='alpha=1.0' | filecheck %s --check-prefix ALPHA

// The gamma and beta of a normalisation, as PyTorch's are written, and all layers that read it: s = sqrt([64, 1] / [4, 1]).
func.func @normalised(%n: tensor<1x3x2xf32>) -> (tensor<1x3x1xf32>, tensor<1x3x1xf32>) {
  %g = circle.const [64.0, 1.0] : tensor<2xf32>
  %b = circle.const [8.0, 2.0] : tensor<1x1x2xf32>
  %q = circle.const [4.0, 1.0] : tensor<1x2xf32>
  %k = circle.const [2.0, -0.5] : tensor<1x2xf32>
  %0 = circle.mul(%n, %g) : (tensor<1x3x2xf32>, tensor<2xf32>) -> tensor<1x3x2xf32>
  %1 = circle.add(%0, %b) : (tensor<1x3x2xf32>, tensor<1x1x2xf32>) -> tensor<1x3x2xf32, #circle.qparams<min = [-9.0], max = [9.0]>>
  %2 = circle.fully_connected(%1, %q) {keep_num_dims = true} : (tensor<1x3x2xf32, #circle.qparams<min = [-9.0], max = [9.0]>>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  %3 = circle.fully_connected(%1, %k) {keep_num_dims = true} : (tensor<1x3x2xf32, #circle.qparams<min = [-9.0], max = [9.0]>>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  func.return %2, %3 : tensor<1x3x1xf32>, tensor<1x3x1xf32>
}
// CHECK-LABEL: func.func @normalised(
// CHECK: %[[G:.*]] = circle.const [16.0, 1.0] : tensor<2xf32>
// CHECK: circle.mul(%{{[^,]*}}, %[[G]])
// CHECK: %[[B:.*]] = circle.const {{.*}}2.0, 2.0{{.*}} : tensor<1x1x2xf32>
// CHECK: circle.add(%{{[^,]*}}, %[[B]]) {{.*}} -> tensor<1x3x2xf32>
// CHECK: circle.const {{.*}}16.0, 1.0{{.*}} : tensor<1x2xf32>
// CHECK: circle.const {{.*}}8.0, -0.5{{.*}} : tensor<1x2xf32>
// ALPHA-LABEL: func.func @normalised(
// ALPHA: circle.const [1.0, 1.0] : tensor<2xf32>

// -----

// The gamma of RMS_NORM.
func.func @rms(%x: tensor<1x3x2xf32>) -> tensor<1x3x1xf32> {
  %g = circle.const [9.0, 1.0] : tensor<2xf32>
  %w = circle.const [1.0, 1.0] : tensor<1x2xf32>
  %0 = circle.rms_norm(%x, %g) {epsilon = 1.0e-05} : (tensor<1x3x2xf32>, tensor<2xf32>) -> tensor<1x3x2xf32>
  %1 = circle.fully_connected(%0, %w) {keep_num_dims = true} : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  func.return %1 : tensor<1x3x1xf32>
}
// CHECK-LABEL: func.func @rms(
// CHECK: %[[G:.*]] = circle.const [3.0, 1.0] : tensor<2xf32>
// CHECK: circle.rms_norm(%{{[^,]*}}, %[[G]])
// CHECK: circle.const {{.*}}3.0, 1.0{{.*}} : tensor<1x2xf32>

// -----

// Left alone: the sum reads what is normalised, too.
func.func @residual(%n: tensor<1x3x2xf32>) -> tensor<1x3x2xf32> {
  %g = circle.const [64.0, 1.0] : tensor<2xf32>
  %w = circle.const [4.0, 1.0, 4.0, 1.0] : tensor<2x2xf32>
  %0 = circle.mul(%n, %g) : (tensor<1x3x2xf32>, tensor<2xf32>) -> tensor<1x3x2xf32>
  %1 = circle.fully_connected(%0, %w) {keep_num_dims = true} : (tensor<1x3x2xf32>, tensor<2x2xf32>) -> tensor<1x3x2xf32>
  %2 = circle.add(%0, %1) : (tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  func.return %2 : tensor<1x3x2xf32>
}
// CHECK-LABEL: func.func @residual(
// CHECK: circle.const [64.0, 1.0] : tensor<2xf32>

// -----

// A gated unit: channels of the linear branch reach the projection down through the product, those of the gate do not.
func.func @gated(%x: tensor<1x3x1xf32>) -> tensor<1x3x1xf32> {
  %g = circle.const [1.0, 3.0] : tensor<2x1xf32>
  %u = circle.const [64.0, 1.0] : tensor<2x1xf32>
  %d = circle.const [4.0, 1.0] : tensor<1x2xf32>
  %0 = circle.fully_connected(%x, %g) {keep_num_dims = true} : (tensor<1x3x1xf32>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %1 = circle.logistic(%0) : (tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  %2 = circle.mul(%0, %1) : (tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  %3 = circle.fully_connected(%x, %u) {keep_num_dims = true} : (tensor<1x3x1xf32>, tensor<2x1xf32>) -> tensor<1x3x2xf32>
  %4 = circle.mul(%2, %3) : (tensor<1x3x2xf32>, tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  %5 = circle.fully_connected(%4, %d) {keep_num_dims = true} : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  func.return %5 : tensor<1x3x1xf32>
}
// CHECK-LABEL: func.func @gated(
// CHECK: circle.const {{.*}}1.0{{.*}}3.0{{.*}} : tensor<2x1xf32>
// CHECK: circle.const {{.*}}16.0{{.*}}1.0{{.*}} : tensor<2x1xf32>
// CHECK: circle.const {{.*}}16.0, 1.0{{.*}} : tensor<1x2xf32>

// -----

// Two heads of one channel: of queries, keys and values in one layer, the values alone reach the projection. The largest
// of these stays the largest of all, 64, as they share a tensor with the others.
func.func @attention(%x: tensor<1x3x1xf32>) -> tensor<1x3x1xf32> {
  %w = circle.const [1.0, 2.0, 3.0, 4.0, 64.0, 1.0] : tensor<6x1xf32>
  %p = circle.const [4.0, 1.0] : tensor<1x2xf32>
  %s = circle.const [1, 3, 3, 2, 1] : tensor<5xi32>
  %t = circle.const [2, 0, 3, 1, 4] : tensor<5xi32>
  %a = circle.const [0] : tensor<1xi32>
  %h = circle.const [2, 3, 1] : tensor<3xi32>
  %m = circle.const [1, 0, 2] : tensor<3xi32>
  %f = circle.const [1, 3, 2] : tensor<3xi32>
  %0 = circle.fully_connected(%x, %w) {keep_num_dims = true} : (tensor<1x3x1xf32>, tensor<6x1xf32>) -> tensor<1x3x6xf32>
  %1 = circle.reshape(%0, %s) {new_shape = [1, 3, 3, 2, 1]} : (tensor<1x3x6xf32>, tensor<5xi32>) -> tensor<1x3x3x2x1xf32>
  %2 = circle.transpose(%1, %t) : (tensor<1x3x3x2x1xf32>, tensor<5xi32>) -> tensor<3x1x2x3x1xf32>
  %3, %4, %5 = circle.split(%a, %2) {num_splits = 3} : (tensor<1xi32>, tensor<3x1x2x3x1xf32>) -> (tensor<1x1x2x3x1xf32>, tensor<1x1x2x3x1xf32>, tensor<1x1x2x3x1xf32>)
  %6 = circle.reshape(%3, %h) {new_shape = [2, 3, 1]} : (tensor<1x1x2x3x1xf32>, tensor<3xi32>) -> tensor<2x3x1xf32>
  %7 = circle.reshape(%4, %h) {new_shape = [2, 3, 1]} : (tensor<1x1x2x3x1xf32>, tensor<3xi32>) -> tensor<2x3x1xf32>
  %8 = circle.reshape(%5, %h) {new_shape = [2, 3, 1]} : (tensor<1x1x2x3x1xf32>, tensor<3xi32>) -> tensor<2x3x1xf32>
  %9 = circle.batch_matmul(%6, %7) {adjoint_rhs = true} : (tensor<2x3x1xf32>, tensor<2x3x1xf32>) -> tensor<2x3x3xf32>
  %10 = circle.softmax(%9) {beta = 1.0} : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %11 = circle.batch_matmul(%10, %8) : (tensor<2x3x3xf32>, tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %12 = circle.transpose(%11, %m) : (tensor<2x3x1xf32>, tensor<3xi32>) -> tensor<3x2x1xf32>
  %13 = circle.reshape(%12, %f) {new_shape = [1, 3, 2]} : (tensor<3x2x1xf32>, tensor<3xi32>) -> tensor<1x3x2xf32>
  %14 = circle.fully_connected(%13, %p) {keep_num_dims = true} : (tensor<1x3x2xf32>, tensor<1x2xf32>) -> tensor<1x3x1xf32>
  func.return %14 : tensor<1x3x1xf32>
}
// CHECK-LABEL: func.func @attention(
// CHECK: circle.const {{.*}}1.0{{.*}}2.0{{.*}}3.0{{.*}}4.0{{.*}}64.0{{.*}}4.0{{.*}} : tensor<6x1xf32>
// CHECK: circle.const {{.*}}4.0, 0.25{{.*}} : tensor<1x2xf32>

// -----

// Weights that two layers share stay shared, and as they are.
func.func @shared(%x: tensor<1x1xf32>) -> (tensor<1x1xf32>, tensor<1x1xf32>) {
  %w = circle.const [1.0, 64.0] : tensor<2x1xf32>
  %v = circle.const [4.0, 1.0] : tensor<1x2xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32>
  %1 = circle.fully_connected(%0, %v) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  %2 = circle.fully_connected(%1, %w) : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32>
  %3 = circle.fully_connected(%2, %v) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
  func.return %1, %3 : tensor<1x1xf32>, tensor<1x1xf32>
}
// CHECK-LABEL: func.func @shared(
// CHECK: circle.const [1.0, 64.0] : tensor<2x1xf32>
// CHECK: circle.const [4.0, 1.0] : tensor<1x2xf32>
// CHECK-NOT: circle.const
