// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fuse_prelu,fuse_gelu,fuse_hardswish,fuse_leakyrelu,fuse_rmsnorm,fuse_instnorm,fuse_rope,split_group_dimension' | filecheck %s

func.func @fuse_prelu(%0: tensor<1x2x3xf32>) -> tensor<1x2x3xf32> {
  %1 = circle.abs(%0) : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %2 = circle.sub(%0, %1) : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %3 = circle.const [0.1] : tensor<1xf32>
  %4 = circle.mul(%2, %3) : (tensor<1x2x3xf32>, tensor<1xf32>) -> tensor<1x2x3xf32>
  %5 = circle.relu(%0) : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %6 = circle.add(%5, %4) : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  func.return %6 : tensor<1x2x3xf32>
}
// CHECK-LABEL: func.func @fuse_prelu(
// CHECK-NOT: circle.abs(
// CHECK-NOT: circle.add(
// CHECK-NOT: circle.mul(
// CHECK-NOT: circle.relu(
// CHECK-NOT: circle.sub(
// CHECK: circle.prelu({{.*}} -> tensor<1x2x3xf32>
// CHECK: func.return

// -----

func.func @fuse_prelu_not(%0: tensor<3xf32>, %1: tensor<3xf32>) -> tensor<3xf32> {
  %2 = circle.relu(%0) : (tensor<3xf32>) -> tensor<3xf32>
  %3 = circle.add(%2, %1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  func.return %3 : tensor<3xf32>
}
// CHECK-LABEL: func.func @fuse_prelu_not(
// CHECK: circle.relu({{.*}} -> tensor<3xf32>
// CHECK: circle.add({{.*}} -> tensor<3xf32>
// CHECK: func.return

// -----

func.func @fuse_gelu(%0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %1 = circle.const [3.0] : tensor<1xf32>
  %2 = circle.pow(%0, %1) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %3 = circle.const [0.044715] : tensor<1xf32>
  %4 = circle.mul(%2, %3) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %5 = circle.add(%0, %4) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %6 = circle.const [0.7978846] : tensor<1xf32>
  %7 = circle.mul(%5, %6) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %8 = circle.const [0.5] : tensor<1xf32>
  %9 = circle.mul(%0, %8) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %10 = circle.tanh(%7) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %11 = circle.const [1.0] : tensor<1xf32>
  %12 = circle.add(%10, %11) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %13 = circle.mul(%9, %12) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %13 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @fuse_gelu(
// CHECK-NOT: circle.add(
// CHECK-NOT: circle.mul(
// CHECK-NOT: circle.pow(
// CHECK-NOT: circle.tanh(
// CHECK: circle.gelu({{.*}} -> tensor<2x4xf32>
// CHECK: func.return

// -----

func.func @fuse_gelu_not(%0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %1 = circle.const [3.0] : tensor<1xf32>
  %2 = circle.pow(%0, %1) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %3 = circle.const [0.05] : tensor<1xf32>
  %4 = circle.mul(%2, %3) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %5 = circle.add(%0, %4) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %6 = circle.const [0.7978846] : tensor<1xf32>
  %7 = circle.mul(%5, %6) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %8 = circle.const [0.5] : tensor<1xf32>
  %9 = circle.mul(%0, %8) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %10 = circle.tanh(%7) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %11 = circle.const [1.0] : tensor<1xf32>
  %12 = circle.add(%10, %11) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %13 = circle.mul(%9, %12) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %13 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @fuse_gelu_not(
// CHECK: circle.pow({{.*}} -> tensor<2x4xf32>
// CHECK: circle.mul({{.*}} -> tensor<2x4xf32>
// CHECK: circle.add({{.*}} -> tensor<2x4xf32>
// CHECK: circle.mul({{.*}} -> tensor<2x4xf32>
// CHECK: circle.mul({{.*}} -> tensor<2x4xf32>
// CHECK: circle.tanh({{.*}} -> tensor<2x4xf32>
// CHECK: circle.add({{.*}} -> tensor<2x4xf32>
// CHECK: circle.mul({{.*}} -> tensor<2x4xf32>
// CHECK: func.return

// -----

func.func @fuse_hardswish(%0: tensor<2x9xf32>) -> tensor<2x9xf32> {
  %1 = circle.const [3.0] : tensor<1xf32>
  %2 = circle.add(%0, %1) {activation = relu6} : (tensor<2x9xf32>, tensor<1xf32>) -> tensor<2x9xf32>
  %3 = circle.mul(%0, %2) : (tensor<2x9xf32>, tensor<2x9xf32>) -> tensor<2x9xf32>
  %4 = circle.const [6.0] : tensor<1xf32>
  %5 = circle.div(%3, %4) : (tensor<2x9xf32>, tensor<1xf32>) -> tensor<2x9xf32>
  func.return %5 : tensor<2x9xf32>
}
// CHECK-LABEL: func.func @fuse_hardswish(
// CHECK-NOT: circle.add(
// CHECK-NOT: circle.div(
// CHECK-NOT: circle.mul(
// CHECK: circle.hard_swish({{.*}} -> tensor<2x9xf32>
// CHECK: func.return

// -----

func.func @fuse_hardswish_not(%0: tensor<2x9xf32>) -> tensor<2x9xf32> {
  %1 = circle.const [3.0] : tensor<1xf32>
  %2 = circle.add(%0, %1) {activation = relu6} : (tensor<2x9xf32>, tensor<1xf32>) -> tensor<2x9xf32>
  %3 = circle.mul(%0, %2) : (tensor<2x9xf32>, tensor<2x9xf32>) -> tensor<2x9xf32>
  %4 = circle.const [5.9] : tensor<1xf32>
  %5 = circle.div(%3, %4) : (tensor<2x9xf32>, tensor<1xf32>) -> tensor<2x9xf32>
  func.return %5 : tensor<2x9xf32>
}
// CHECK-LABEL: func.func @fuse_hardswish_not(
// CHECK: circle.add({{.*}} -> tensor<2x9xf32>
// CHECK: circle.mul({{.*}} -> tensor<2x9xf32>
// CHECK: circle.div({{.*}} -> tensor<2x9xf32>
// CHECK: func.return

// -----

func.func @fuse_leakyrelu(%0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %1 = circle.const [0.1] : tensor<1xf32>
  %2 = circle.mul(%0, %1) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %3 = circle.maximum(%0, %2) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %3 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @fuse_leakyrelu(
// CHECK-NOT: circle.maximum(
// CHECK-NOT: circle.mul(
// CHECK: circle.leaky_relu({{.*}} -> tensor<2x4xf32>
// CHECK: func.return

// -----

func.func @fuse_leakyrelu_not(%0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %1 = circle.const [1.5] : tensor<1xf32>
  %2 = circle.mul(%0, %1) : (tensor<2x4xf32>, tensor<1xf32>) -> tensor<2x4xf32>
  %3 = circle.maximum(%0, %2) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %3 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @fuse_leakyrelu_not(
// CHECK: circle.mul({{.*}} -> tensor<2x4xf32>
// CHECK: circle.maximum({{.*}} -> tensor<2x4xf32>
// CHECK: func.return

// -----

func.func @fuse_rmsnorm(%0: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %1 = circle.mul(%0, %0) : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %2 = circle.const [-1] : tensor<1xi32>
  %3 = circle.mean(%1, %2) {keep_dims = true} : (tensor<2x3x4xf32>, tensor<1xi32>) -> tensor<2x3x1xf32>
  %4 = circle.const [1.0e-05] : tensor<1xf32>
  %5 = circle.add(%3, %4) : (tensor<2x3x1xf32>, tensor<1xf32>) -> tensor<2x3x1xf32>
  %6 = circle.rsqrt(%5) : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %7 = circle.mul(%0, %6) : (tensor<2x3x4xf32>, tensor<2x3x1xf32>) -> tensor<2x3x4xf32>
  %8 = circle.const [-0.2, 0.5, 1.9, -0.3] : tensor<4xf32>
  %9 = circle.mul(%7, %8) : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
  func.return %9 : tensor<2x3x4xf32>
}
// CHECK-LABEL: func.func @fuse_rmsnorm(
// CHECK-NOT: circle.add(
// CHECK-NOT: circle.mean(
// CHECK-NOT: circle.mul(
// CHECK-NOT: circle.rsqrt(
// CHECK: circle.rms_norm({{.*}} -> tensor<2x3x4xf32>
// CHECK: func.return

// -----

func.func @fuse_rmsnorm_not(%0: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %1 = circle.mul(%0, %0) : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %2 = circle.const [1] : tensor<1xi32>
  %3 = circle.mean(%1, %2) {keep_dims = true} : (tensor<2x3x4xf32>, tensor<1xi32>) -> tensor<2x1x4xf32>
  %4 = circle.const [1.0e-05] : tensor<1xf32>
  %5 = circle.add(%3, %4) : (tensor<2x1x4xf32>, tensor<1xf32>) -> tensor<2x1x4xf32>
  %6 = circle.rsqrt(%5) : (tensor<2x1x4xf32>) -> tensor<2x1x4xf32>
  %7 = circle.mul(%0, %6) : (tensor<2x3x4xf32>, tensor<2x1x4xf32>) -> tensor<2x3x4xf32>
  %8 = circle.const [-0.2, 0.5, 1.9, -0.3] : tensor<4xf32>
  %9 = circle.mul(%7, %8) : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
  func.return %9 : tensor<2x3x4xf32>
}
// CHECK-LABEL: func.func @fuse_rmsnorm_not(
// CHECK: circle.mul({{.*}} -> tensor<2x3x4xf32>
// CHECK: circle.mean({{.*}} -> tensor<2x1x4xf32>
// CHECK: circle.add({{.*}} -> tensor<2x1x4xf32>
// CHECK: circle.rsqrt({{.*}} -> tensor<2x1x4xf32>
// CHECK: circle.mul({{.*}} -> tensor<2x3x4xf32>
// CHECK: circle.mul({{.*}} -> tensor<2x3x4xf32>
// CHECK: func.return

// -----

func.func @fuse_instnorm(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [1, 2] : tensor<2xi32>
  %2 = circle.mean(%0, %1) {keep_dims = true} : (tensor<1x4x5x3xf32>, tensor<2xi32>) -> tensor<1x1x1x3xf32>
  %3 = circle.sub(%0, %2) : (tensor<1x4x5x3xf32>, tensor<1x1x1x3xf32>) -> tensor<1x4x5x3xf32>
  %4 = circle.mul(%3, %3) : (tensor<1x4x5x3xf32>, tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  %5 = circle.const [1, 2] : tensor<2xi32>
  %6 = circle.mean(%4, %5) {keep_dims = true} : (tensor<1x4x5x3xf32>, tensor<2xi32>) -> tensor<1x1x1x3xf32>
  %7 = circle.const [1.0e-05] : tensor<1xf32>
  %8 = circle.add(%6, %7) : (tensor<1x1x1x3xf32>, tensor<1xf32>) -> tensor<1x1x1x3xf32>
  %9 = circle.rsqrt(%8) : (tensor<1x1x1x3xf32>) -> tensor<1x1x1x3xf32>
  %10 = circle.mul(%3, %9) : (tensor<1x4x5x3xf32>, tensor<1x1x1x3xf32>) -> tensor<1x4x5x3xf32>
  %11 = circle.const [0.5, -1.6, 0.1] : tensor<3xf32>
  %12 = circle.mul(%10, %11) : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %13 = circle.const [-1.0, 0.8, -2.0] : tensor<3xf32>
  %14 = circle.add(%12, %13) {activation = relu} : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  func.return %14 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @fuse_instnorm(
// CHECK-NOT: circle.add(
// CHECK-NOT: circle.mean(
// CHECK-NOT: circle.mul(
// CHECK-NOT: circle.rsqrt(
// CHECK-NOT: circle.sub(
// CHECK: circle.instance_norm({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @fuse_instnorm_not(%0: tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> {
  %1 = circle.const [1] : tensor<1xi32>
  %2 = circle.mean(%0, %1) {keep_dims = true} : (tensor<1x4x5x3xf32>, tensor<1xi32>) -> tensor<1x1x5x3xf32>
  %3 = circle.sub(%0, %2) : (tensor<1x4x5x3xf32>, tensor<1x1x5x3xf32>) -> tensor<1x4x5x3xf32>
  %4 = circle.mul(%3, %3) : (tensor<1x4x5x3xf32>, tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32>
  %5 = circle.const [1] : tensor<1xi32>
  %6 = circle.mean(%4, %5) {keep_dims = true} : (tensor<1x4x5x3xf32>, tensor<1xi32>) -> tensor<1x1x5x3xf32>
  %7 = circle.const [1.0e-05] : tensor<1xf32>
  %8 = circle.add(%6, %7) : (tensor<1x1x5x3xf32>, tensor<1xf32>) -> tensor<1x1x5x3xf32>
  %9 = circle.rsqrt(%8) : (tensor<1x1x5x3xf32>) -> tensor<1x1x5x3xf32>
  %10 = circle.mul(%3, %9) : (tensor<1x4x5x3xf32>, tensor<1x1x5x3xf32>) -> tensor<1x4x5x3xf32>
  %11 = circle.const [0.5, -1.6, 0.1] : tensor<3xf32>
  %12 = circle.mul(%10, %11) : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  %13 = circle.const [-1.0, 0.8, -2.0] : tensor<3xf32>
  %14 = circle.add(%12, %13) {activation = relu} : (tensor<1x4x5x3xf32>, tensor<3xf32>) -> tensor<1x4x5x3xf32>
  func.return %14 : tensor<1x4x5x3xf32>
}
// CHECK-LABEL: func.func @fuse_instnorm_not(
// CHECK: circle.mean({{.*}} -> tensor<1x1x5x3xf32>
// CHECK: circle.sub({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x1x5x3xf32>
// CHECK: circle.add({{.*}} -> tensor<1x1x5x3xf32>
// CHECK: circle.rsqrt({{.*}} -> tensor<1x1x5x3xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: circle.add({{.*}} -> tensor<1x4x5x3xf32>
// CHECK: func.return

// -----

func.func @fuse_rope(%0: tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> {
  %1 = circle.const [0, 0, 0, 0] : tensor<4xi32>
  %2 = circle.const [1, 2, 3, 2] : tensor<4xi32>
  %3 = circle.slice(%0, %1, %2) : (tensor<1x2x3x4xf32>, tensor<4xi32>, tensor<4xi32>) -> tensor<1x2x3x2xf32>
  %4 = circle.const [0, 0, 0, 2] : tensor<4xi32>
  %5 = circle.const [1, 2, 3, 2] : tensor<4xi32>
  %6 = circle.slice(%0, %4, %5) : (tensor<1x2x3x4xf32>, tensor<4xi32>, tensor<4xi32>) -> tensor<1x2x3x2xf32>
  %7 = circle.neg(%6) : (tensor<1x2x3x2xf32>) -> tensor<1x2x3x2xf32>
  %8 = circle.concatenation(%7, %3) {axis = -1} : (tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32>) -> tensor<1x2x3x4xf32>
  %9 = circle.const [-0.18283898, 0.54052514, 1.935088, -0.26962033, -0.24355868, 1.0023136, -0.88645995, -0.29172024, 0.882539, 0.58035004, 0.0915167, 0.6701044] : tensor<3x4xf32>
  %10 = circle.const [-2.8281622, 1.0213069, -0.95964473, -1.6686199, 0.27644575, 0.7005449, -0.44476745, -1.0764059, 0.026124833, -0.05274731, 1.4055982, 0.747408] : tensor<3x4xf32>
  %11 = circle.mul(%0, %9) : (tensor<1x2x3x4xf32>, tensor<3x4xf32>) -> tensor<1x2x3x4xf32>
  %12 = circle.mul(%8, %10) : (tensor<1x2x3x4xf32>, tensor<3x4xf32>) -> tensor<1x2x3x4xf32>
  %13 = circle.add(%11, %12) : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>
  func.return %13 : tensor<1x2x3x4xf32>
}
// CHECK-LABEL: func.func @fuse_rope(
// CHECK-NOT: circle.add(
// CHECK-NOT: circle.concatenation(
// CHECK-NOT: circle.mul(
// CHECK-NOT: circle.neg(
// CHECK-NOT: circle.slice(
// CHECK: circle.rope({{.*}} -> tensor<1x2x3x4xf32>
// CHECK: func.return

// -----

func.func @fuse_rope_not(%0: tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> {
  %1 = circle.const [0, 0, 0, 0] : tensor<4xi32>
  %2 = circle.const [1, 2, 3, 2] : tensor<4xi32>
  %3 = circle.slice(%0, %1, %2) : (tensor<1x2x3x4xf32>, tensor<4xi32>, tensor<4xi32>) -> tensor<1x2x3x2xf32>
  %4 = circle.const [0, 0, 0, 2] : tensor<4xi32>
  %5 = circle.const [1, 2, 3, 2] : tensor<4xi32>
  %6 = circle.slice(%0, %4, %5) : (tensor<1x2x3x4xf32>, tensor<4xi32>, tensor<4xi32>) -> tensor<1x2x3x2xf32>
  %7 = circle.neg(%6) : (tensor<1x2x3x2xf32>) -> tensor<1x2x3x2xf32>
  %8 = circle.concatenation(%3, %7) {axis = -1} : (tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32>) -> tensor<1x2x3x4xf32>
  %9 = circle.const [-0.18283898, 0.54052514, 1.935088, -0.26962033, -0.24355868, 1.0023136, -0.88645995, -0.29172024, 0.882539, 0.58035004, 0.0915167, 0.6701044] : tensor<3x4xf32>
  %10 = circle.const [-2.8281622, 1.0213069, -0.95964473, -1.6686199, 0.27644575, 0.7005449, -0.44476745, -1.0764059, 0.026124833, -0.05274731, 1.4055982, 0.747408] : tensor<3x4xf32>
  %11 = circle.mul(%0, %9) : (tensor<1x2x3x4xf32>, tensor<3x4xf32>) -> tensor<1x2x3x4xf32>
  %12 = circle.mul(%8, %10) : (tensor<1x2x3x4xf32>, tensor<3x4xf32>) -> tensor<1x2x3x4xf32>
  %13 = circle.add(%11, %12) : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>
  func.return %13 : tensor<1x2x3x4xf32>
}
// CHECK-LABEL: func.func @fuse_rope_not(
// CHECK: circle.slice({{.*}} -> tensor<1x2x3x2xf32>
// CHECK: circle.slice({{.*}} -> tensor<1x2x3x2xf32>
// CHECK: circle.neg({{.*}} -> tensor<1x2x3x2xf32>
// CHECK: circle.concatenation({{.*}} -> tensor<1x2x3x4xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x2x3x4xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x2x3x4xf32>
// CHECK: circle.add({{.*}} -> tensor<1x2x3x4xf32>
// CHECK: func.return

// -----

func.func @split_group_dimension(%0: tensor<1x4x3x2xf32>) -> tensor<1x4x3x2xf32> {
  %1 = circle.const [2, 12] : tensor<2xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [2, 12]} : (tensor<1x4x3x2xf32>, tensor<2xi32>) -> tensor<2x12xf32>
  %3 = circle.const [-1] : tensor<1xi32>
  %4 = circle.mean(%2, %3) {keep_dims = true} : (tensor<2x12xf32>, tensor<1xi32>) -> tensor<2x1xf32>
  %5 = circle.sub(%2, %4) : (tensor<2x12xf32>, tensor<2x1xf32>) -> tensor<2x12xf32>
  %6 = circle.mul(%5, %5) : (tensor<2x12xf32>, tensor<2x12xf32>) -> tensor<2x12xf32>
  %7 = circle.const [-1] : tensor<1xi32>
  %8 = circle.mean(%6, %7) {keep_dims = true} : (tensor<2x12xf32>, tensor<1xi32>) -> tensor<2x1xf32>
  %9 = circle.const [1.0e-05] : tensor<1xf32>
  %10 = circle.add(%8, %9) : (tensor<2x1xf32>, tensor<1xf32>) -> tensor<2x1xf32>
  %11 = circle.rsqrt(%10) : (tensor<2x1xf32>) -> tensor<2x1xf32>
  %12 = circle.mul(%5, %11) : (tensor<2x12xf32>, tensor<2x1xf32>) -> tensor<2x12xf32>
  %13 = circle.const [1, 4, 3, 2] : tensor<4xi32>
  %14 = circle.reshape(%12, %13) {new_shape = [1, 4, 3, 2]} : (tensor<2x12xf32>, tensor<4xi32>) -> tensor<1x4x3x2xf32>
  %15 = circle.relu(%14) : (tensor<1x4x3x2xf32>) -> tensor<1x4x3x2xf32>
  func.return %15 : tensor<1x4x3x2xf32>
}
// CHECK-LABEL: func.func @split_group_dimension(
// CHECK: circle.reshape({{.*}} -> tensor<1x2x2x6xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x2x2x1xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x2x1x1xf32>
// CHECK: circle.sub({{.*}} -> tensor<1x2x2x6xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x2x2x6xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x2x2x1xf32>
// CHECK: circle.mean({{.*}} -> tensor<1x2x1x1xf32>
// CHECK: circle.add({{.*}} -> tensor<1x2x1x1xf32>
// CHECK: circle.rsqrt({{.*}} -> tensor<1x2x1x1xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x2x2x6xf32>
// CHECK: circle.reshape({{.*}} -> tensor<1x4x3x2xf32>
// CHECK: circle.relu({{.*}} -> tensor<1x4x3x2xf32>
// CHECK: func.return

// -----

func.func @split_group_dimension_not(%0: tensor<1x4x3x2xf32>) -> tensor<1x4x3x2xf32> {
  %1 = circle.const [12, 2] : tensor<2xi32>
  %2 = circle.reshape(%0, %1) {new_shape = [12, 2]} : (tensor<1x4x3x2xf32>, tensor<2xi32>) -> tensor<12x2xf32>
  %3 = circle.const [-1] : tensor<1xi32>
  %4 = circle.mean(%2, %3) {keep_dims = true} : (tensor<12x2xf32>, tensor<1xi32>) -> tensor<12x1xf32>
  %5 = circle.sub(%2, %4) : (tensor<12x2xf32>, tensor<12x1xf32>) -> tensor<12x2xf32>
  %6 = circle.mul(%5, %5) : (tensor<12x2xf32>, tensor<12x2xf32>) -> tensor<12x2xf32>
  %7 = circle.const [-1] : tensor<1xi32>
  %8 = circle.mean(%6, %7) {keep_dims = true} : (tensor<12x2xf32>, tensor<1xi32>) -> tensor<12x1xf32>
  %9 = circle.const [1.0e-05] : tensor<1xf32>
  %10 = circle.add(%8, %9) : (tensor<12x1xf32>, tensor<1xf32>) -> tensor<12x1xf32>
  %11 = circle.rsqrt(%10) : (tensor<12x1xf32>) -> tensor<12x1xf32>
  %12 = circle.mul(%5, %11) : (tensor<12x2xf32>, tensor<12x1xf32>) -> tensor<12x2xf32>
  %13 = circle.const [1, 4, 3, 2] : tensor<4xi32>
  %14 = circle.reshape(%12, %13) {new_shape = [1, 4, 3, 2]} : (tensor<12x2xf32>, tensor<4xi32>) -> tensor<1x4x3x2xf32>
  func.return %14 : tensor<1x4x3x2xf32>
}
// CHECK-LABEL: func.func @split_group_dimension_not(
// CHECK: circle.reshape({{.*}} -> tensor<12x2xf32>
// CHECK: circle.mean({{.*}} -> tensor<12x1xf32>
// CHECK: circle.sub({{.*}} -> tensor<12x2xf32>
// CHECK: circle.mul({{.*}} -> tensor<12x2xf32>
// CHECK: circle.mean({{.*}} -> tensor<12x1xf32>
// CHECK: circle.add({{.*}} -> tensor<12x1xf32>
// CHECK: circle.rsqrt({{.*}} -> tensor<12x1xf32>
// CHECK: circle.mul({{.*}} -> tensor<12x2xf32>
// CHECK: circle.reshape({{.*}} -> tensor<1x4x3x2xf32>
// CHECK: func.return
