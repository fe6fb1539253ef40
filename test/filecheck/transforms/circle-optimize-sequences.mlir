// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=fuse_lstm,fuse_gru' | filecheck %s

func.func @fuse_lstm(%0: tensor<2x1x3xf32>) -> tensor<2x1x2xf32> {
  %1 = circle.const [-2.0, -0.2, -0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5, -0.2, 0.5, 1.9, -0.3, -0.2, 1.0] : tensor<8x3xf32>
  %2 = circle.const [-0.9, -0.3, 0.9, 0.6, 0.1, 0.7, -2.8, 1.0] : tensor<8xf32>
  %3 = circle.fully_connected(%0, %1, %2) {keep_num_dims = true} : (tensor<2x1x3xf32>, tensor<8x3xf32>, tensor<8xf32>) -> tensor<2x1x8xf32>
  %4 = circle.const [-1.0, -1.7, 0.3, 0.7, -0.4, -1.1, 0.0, -0.1, 1.4, 0.7, 0.2, 1.1, -0.2, -0.9, 0.6, 0.6] : tensor<8x2xf32>
  %5 = circle.const [-0.2, -0.8, 0.2, -2.5, 0.7, 0.5, -1.6, 0.1] : tensor<8xf32>
  %6 = circle.const [0.0, 0.0] : tensor<1x1x2xf32>
  %7 = circle.const [-0.2, -0.8, 0.2, -2.5, 0.7, 0.5, -1.6, 0.1] : tensor<1x1x8xf32>
  %8 = circle.const [0, 0, 0] : tensor<3xi32>
  %9 = circle.const [1, 1, 8] : tensor<3xi32>
  %10 = circle.slice(%3, %8, %9) : (tensor<2x1x8xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<1x1x8xf32>
  %11 = circle.const [1, 8] : tensor<2xi32>
  %12 = circle.reshape(%10, %11) {new_shape = [1, 8]} : (tensor<1x1x8xf32>, tensor<2xi32>) -> tensor<1x8xf32>
  %13 = circle.add(%7, %12) : (tensor<1x1x8xf32>, tensor<1x8xf32>) -> tensor<1x1x8xf32>
  %14 = circle.const [2] : tensor<1xi32>
  %15, %16, %17, %18 = circle.split(%14, %13) {num_splits = 4} : (tensor<1xi32>, tensor<1x1x8xf32>) -> (tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>)
  %19 = circle.logistic(%16) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %20 = circle.mul(%19, %6) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %21 = circle.logistic(%15) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %22 = circle.tanh(%17) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %23 = circle.mul(%21, %22) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %24 = circle.add(%20, %23) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %25 = circle.logistic(%18) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %26 = circle.tanh(%24) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %27 = circle.mul(%25, %26) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %28 = circle.fully_connected(%27, %4, %5) {keep_num_dims = true} : (tensor<1x1x2xf32>, tensor<8x2xf32>, tensor<8xf32>) -> tensor<1x1x8xf32>
  %29 = circle.const [1, 0, 0] : tensor<3xi32>
  %30 = circle.const [1, 1, 8] : tensor<3xi32>
  %31 = circle.slice(%3, %29, %30) : (tensor<2x1x8xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<1x1x8xf32>
  %32 = circle.const [1, 8] : tensor<2xi32>
  %33 = circle.reshape(%31, %32) {new_shape = [1, 8]} : (tensor<1x1x8xf32>, tensor<2xi32>) -> tensor<1x8xf32>
  %34 = circle.add(%28, %33) : (tensor<1x1x8xf32>, tensor<1x8xf32>) -> tensor<1x1x8xf32>
  %35 = circle.const [2] : tensor<1xi32>
  %36, %37, %38, %39 = circle.split(%35, %34) {num_splits = 4} : (tensor<1xi32>, tensor<1x1x8xf32>) -> (tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>)
  %40 = circle.logistic(%37) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %41 = circle.mul(%40, %24) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %42 = circle.logistic(%36) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %43 = circle.tanh(%38) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %44 = circle.mul(%42, %43) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %45 = circle.add(%41, %44) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %46 = circle.logistic(%39) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %47 = circle.tanh(%45) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %48 = circle.mul(%46, %47) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %49 = circle.concatenation(%27, %48) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<2x1x2xf32>
  func.return %49 : tensor<2x1x2xf32>
}
// CHECK-LABEL: func.func @fuse_lstm(
// CHECK-NOT: circle.add(
// CHECK-NOT: circle.concatenation(
// CHECK-NOT: circle.fully_connected(
// CHECK-NOT: circle.logistic(
// CHECK-NOT: circle.mul(
// CHECK-NOT: circle.reshape(
// CHECK-NOT: circle.slice(
// CHECK-NOT: circle.split(
// CHECK-NOT: circle.tanh(
// CHECK: circle.unidirectional_sequence_lstm({{.*}} -> tensor<2x1x2xf32>
// CHECK: func.return

// -----

func.func @fuse_lstm_not(%0: tensor<1x1x3xf32>) -> tensor<1x1x2xf32> {
  %1 = circle.const [-0.6, -0.5, -0.2, -2.0, -0.2, -0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5, -0.2, 0.5, 1.9] : tensor<8x3xf32>
  %2 = circle.const [-0.3, -0.2, 1.0, -0.9, -0.3, 0.9, 0.6, 0.1] : tensor<8xf32>
  %3 = circle.fully_connected(%0, %1, %2) {keep_num_dims = true} : (tensor<1x1x3xf32>, tensor<8x3xf32>, tensor<8xf32>) -> tensor<1x1x8xf32>
  %4 = circle.const [0.7, -2.8, 1.0, -1.0, -1.7, 0.3, 0.7, -0.4, -1.1, 0.0, -0.1, 1.4, 0.7, 0.2, 1.1, -0.2] : tensor<8x2xf32>
  %5 = circle.const [-0.9, 0.6, 0.6, -0.2, -0.8, 0.2, -2.5, 0.7] : tensor<8xf32>
  %6 = circle.const [0.0, 0.0] : tensor<1x1x2xf32>
  %7 = circle.const [-0.9, 0.6, 0.6, -0.2, -0.8, 0.2, -2.5, 0.7] : tensor<1x1x8xf32>
  %8 = circle.const [0, 0, 0] : tensor<3xi32>
  %9 = circle.const [1, 1, 8] : tensor<3xi32>
  %10 = circle.slice(%3, %8, %9) : (tensor<1x1x8xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<1x1x8xf32>
  %11 = circle.const [1, 8] : tensor<2xi32>
  %12 = circle.reshape(%10, %11) {new_shape = [1, 8]} : (tensor<1x1x8xf32>, tensor<2xi32>) -> tensor<1x8xf32>
  %13 = circle.add(%7, %12) : (tensor<1x1x8xf32>, tensor<1x8xf32>) -> tensor<1x1x8xf32>
  %14 = circle.const [2] : tensor<1xi32>
  %15, %16, %17, %18 = circle.split(%14, %13) {num_splits = 4} : (tensor<1xi32>, tensor<1x1x8xf32>) -> (tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>)
  %19 = circle.logistic(%16) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %20 = circle.mul(%19, %6) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %21 = circle.logistic(%15) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %22 = circle.tanh(%17) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %23 = circle.mul(%21, %22) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %24 = circle.add(%20, %23) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %25 = circle.logistic(%18) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %26 = circle.tanh(%24) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %27 = circle.mul(%25, %26) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %28 = circle.concatenation(%27) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  func.return %28 : tensor<1x1x2xf32>
}
// CHECK-LABEL: func.func @fuse_lstm_not(
// CHECK: circle.fully_connected({{.*}} -> tensor<1x1x8xf32>
// CHECK: circle.slice({{.*}} -> tensor<1x1x8xf32>
// CHECK: circle.reshape({{.*}} -> tensor<1x8xf32>
// CHECK: circle.add({{.*}} -> tensor<1x1x8xf32>
// CHECK: circle.split({{.*}} -> (tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>)
// CHECK: circle.logistic({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.logistic({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.tanh({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.add({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.logistic({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.tanh({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.concatenation({{.*}} -> tensor<1x1x2xf32>
// CHECK: func.return

// -----

func.func @fuse_gru(%0: tensor<2x1x3xf32>) -> tensor<2x1x2xf32> {
  %1 = circle.const [-2.0, -0.2, -0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0, 1.5, 0.5, -0.5] : tensor<6x3xf32>
  %2 = circle.const [-0.2, 0.5, 1.9, -0.3, -0.2, 1.0] : tensor<6xf32>
  %3 = circle.fully_connected(%0, %1, %2) {keep_num_dims = true} : (tensor<2x1x3xf32>, tensor<6x3xf32>, tensor<6xf32>) -> tensor<2x1x6xf32>
  %4 = circle.const [-0.9, -0.3, 0.9, 0.6, 0.1, 0.7, -2.8, 1.0, -1.0, -1.7, 0.3, 0.7] : tensor<6x2xf32>
  %5 = circle.const [-0.4, -1.1, 0.0, -0.1, 1.4, 0.7] : tensor<6xf32>
  %6 = circle.const [0.0, 0.0] : tensor<1x1x2xf32>
  %7 = circle.const [0, 0, 0] : tensor<3xi32>
  %8 = circle.const [1, 1, 6] : tensor<3xi32>
  %9 = circle.slice(%3, %7, %8) : (tensor<2x1x6xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<1x1x6xf32>
  %10 = circle.const [1, 6] : tensor<2xi32>
  %11 = circle.reshape(%9, %10) {new_shape = [1, 6]} : (tensor<1x1x6xf32>, tensor<2xi32>) -> tensor<1x6xf32>
  %12 = circle.const [1] : tensor<1xi32>
  %13, %14, %15 = circle.split(%12, %11) {num_splits = 3} : (tensor<1xi32>, tensor<1x6xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>)
  %16 = circle.const [-0.4, -1.1] : tensor<1x1x2xf32>
  %17 = circle.const [0.0, -0.1] : tensor<1x1x2xf32>
  %18 = circle.const [1.4, 0.7] : tensor<1x1x2xf32>
  %19 = circle.add(%16, %13) : (tensor<1x1x2xf32>, tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %20 = circle.logistic(%19) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %21 = circle.add(%17, %14) : (tensor<1x1x2xf32>, tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %22 = circle.logistic(%21) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %23 = circle.mul(%18, %20) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %24 = circle.add(%15, %23) : (tensor<1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %25 = circle.tanh(%24) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %26 = circle.sub(%6, %25) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %27 = circle.mul(%26, %22) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %28 = circle.add(%27, %25) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %29 = circle.const [1, 0, 0] : tensor<3xi32>
  %30 = circle.const [1, 1, 6] : tensor<3xi32>
  %31 = circle.slice(%3, %29, %30) : (tensor<2x1x6xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<1x1x6xf32>
  %32 = circle.const [1, 6] : tensor<2xi32>
  %33 = circle.reshape(%31, %32) {new_shape = [1, 6]} : (tensor<1x1x6xf32>, tensor<2xi32>) -> tensor<1x6xf32>
  %34 = circle.const [1] : tensor<1xi32>
  %35, %36, %37 = circle.split(%34, %33) {num_splits = 3} : (tensor<1xi32>, tensor<1x6xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>)
  %38 = circle.fully_connected(%28, %4, %5) {keep_num_dims = true} : (tensor<1x1x2xf32>, tensor<6x2xf32>, tensor<6xf32>) -> tensor<1x1x6xf32>
  %39 = circle.const [2] : tensor<1xi32>
  %40, %41, %42 = circle.split(%39, %38) {num_splits = 3} : (tensor<1xi32>, tensor<1x1x6xf32>) -> (tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>)
  %43 = circle.add(%40, %35) : (tensor<1x1x2xf32>, tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %44 = circle.logistic(%43) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %45 = circle.add(%41, %36) : (tensor<1x1x2xf32>, tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %46 = circle.logistic(%45) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %47 = circle.mul(%42, %44) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %48 = circle.add(%37, %47) : (tensor<1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %49 = circle.tanh(%48) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %50 = circle.sub(%28, %49) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %51 = circle.mul(%50, %46) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %52 = circle.add(%51, %49) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %53 = circle.concatenation(%28, %52) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<2x1x2xf32>
  func.return %53 : tensor<2x1x2xf32>
}
// CHECK-LABEL: func.func @fuse_gru(
// CHECK-NOT: circle.add(
// CHECK-NOT: circle.concatenation(
// CHECK-NOT: circle.fully_connected(
// CHECK-NOT: circle.logistic(
// CHECK-NOT: circle.mul(
// CHECK-NOT: circle.reshape(
// CHECK-NOT: circle.slice(
// CHECK-NOT: circle.split(
// CHECK-NOT: circle.sub(
// CHECK-NOT: circle.tanh(
// CHECK: circle.gru({{.*}} -> tensor<2x1x2xf32>
// CHECK: func.return

// -----

func.func @fuse_gru_not(%0: tensor<1x1x3xf32>) -> tensor<1x1x2xf32> {
  %1 = circle.const [-0.6, -0.5, -0.2, -2.0, -0.2, -0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2, 1.0, -0.2, 0.0] : tensor<6x3xf32>
  %2 = circle.const [1.5, 0.5, -0.5, -0.2, 0.5, 1.9] : tensor<6xf32>
  %3 = circle.fully_connected(%0, %1, %2) {keep_num_dims = true} : (tensor<1x1x3xf32>, tensor<6x3xf32>, tensor<6xf32>) -> tensor<1x1x6xf32>
  %4 = circle.const [-0.3, -0.2, 1.0, -0.9, -0.3, 0.9, 0.6, 0.1, 0.7, -2.8, 1.0, -1.0] : tensor<6x2xf32>
  %5 = circle.const [-1.7, 0.3, 0.7, -0.4, -1.1, 0.0] : tensor<6xf32>
  %6 = circle.const [0.0, 0.0] : tensor<1x1x2xf32>
  %7 = circle.const [0, 0, 0] : tensor<3xi32>
  %8 = circle.const [1, 1, 6] : tensor<3xi32>
  %9 = circle.slice(%3, %7, %8) : (tensor<1x1x6xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<1x1x6xf32>
  %10 = circle.const [1, 6] : tensor<2xi32>
  %11 = circle.reshape(%9, %10) {new_shape = [1, 6]} : (tensor<1x1x6xf32>, tensor<2xi32>) -> tensor<1x6xf32>
  %12 = circle.const [1] : tensor<1xi32>
  %13, %14, %15 = circle.split(%12, %11) {num_splits = 3} : (tensor<1xi32>, tensor<1x6xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>)
  %16 = circle.const [-1.7, 0.3] : tensor<1x1x2xf32>
  %17 = circle.const [0.7, -0.4] : tensor<1x1x2xf32>
  %18 = circle.const [-1.1, 0.0] : tensor<1x1x2xf32>
  %19 = circle.add(%16, %13) : (tensor<1x1x2xf32>, tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %20 = circle.logistic(%19) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %21 = circle.add(%17, %14) : (tensor<1x1x2xf32>, tensor<1x2xf32>) -> tensor<1x1x2xf32>
  %22 = circle.logistic(%21) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %23 = circle.mul(%18, %20) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %24 = circle.add(%15, %23) : (tensor<1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %25 = circle.tanh(%24) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %26 = circle.sub(%6, %25) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %27 = circle.mul(%26, %22) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %28 = circle.add(%27, %25) : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  %29 = circle.concatenation(%28) : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
  func.return %29 : tensor<1x1x2xf32>
}
// CHECK-LABEL: func.func @fuse_gru_not(
// CHECK: circle.fully_connected({{.*}} -> tensor<1x1x6xf32>
// CHECK: circle.slice({{.*}} -> tensor<1x1x6xf32>
// CHECK: circle.reshape({{.*}} -> tensor<1x6xf32>
// CHECK: circle.split({{.*}} -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>)
// CHECK: circle.add({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.logistic({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.add({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.logistic({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.add({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.tanh({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.sub({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.mul({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.add({{.*}} -> tensor<1x1x2xf32>
// CHECK: circle.concatenation({{.*}} -> tensor<1x1x2xf32>
// CHECK: func.return
