// RUN: odc-opt %s --split-input-file '--circle-optimize=level=none rewrites=resolve_customop_add,resolve_customop_batchmatmul,resolve_customop_matmul,resolve_customop_splitv,resolve_customop_transpose_conv' | filecheck %s

func.func @resolve_customop_add(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.const [-2.0, -0.2, -0.9] : tensor<3xf32>
  %2 = circle.custom(%0, %1) {custom_code = "AddV2", custom_options = #circle.blob<"0x540001030101010104022401">} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  func.return %2 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @resolve_customop_add(
// CHECK-NOT: circle.custom(
// CHECK: circle.add({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @resolve_customop_add_not(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.custom(%0) {custom_code = "Erf"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @resolve_customop_add_not(
// CHECK: circle.custom({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @resolve_customop_batchmatmul(%0: tensor<2x3x4xf32>, %1: tensor<2x5x4xf32>) -> tensor<2x3x5xf32> {
  %2 = circle.custom(%0, %1) {custom_code = "BatchMatMulV2", custom_options = #circle.blob<"0x61646a5f780061646a5f7900020d0802010200016868042401">} : (tensor<2x3x4xf32>, tensor<2x5x4xf32>) -> tensor<2x3x5xf32>
  func.return %2 : tensor<2x3x5xf32>
}
// CHECK-LABEL: func.func @resolve_customop_batchmatmul(
// CHECK-NOT: circle.custom(
// CHECK: circle.batch_matmul({{.*}} -> tensor<2x3x5xf32>
// CHECK: func.return

// -----

func.func @resolve_customop_batchmatmul_not(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.custom(%0) {custom_code = "Erf"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @resolve_customop_batchmatmul_not(
// CHECK: circle.custom({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @resolve_customop_matmul(%0: tensor<3x2xf32>) -> tensor<2x4xf32> {
  %1 = circle.const [-2.0, -0.2, -0.9, 3.3, 0.2, -0.4, -0.3, -0.7, -1.1, -0.4, 0.5, -0.2] : tensor<3x4xf32>
  %2 = circle.custom(%0, %1) {custom_code = "MatMul", custom_options = #circle.blob<"0x7472616e73706f73655f61007472616e73706f73655f620002190e02010201006868042401">} : (tensor<3x2xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  func.return %2 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @resolve_customop_matmul(
// CHECK-NOT: circle.custom(
// CHECK: circle.batch_matmul({{.*}} -> tensor<2x4xf32>
// CHECK: func.return

// -----

func.func @resolve_customop_matmul_not(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.custom(%0) {custom_code = "Erf"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @resolve_customop_matmul_not(
// CHECK: circle.custom({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @resolve_customop_splitv(%0: tensor<2x5xf32>) -> (tensor<2x2xf32>, tensor<2x3xf32>) {
  %1 = circle.const [2, 3] : tensor<2xi32>
  %2 = circle.const [1] : tensor<1xi32>
  %3, %4 = circle.custom(%0, %1, %2) {custom_code = "SplitV", custom_options = #circle.blob<"0x6e756d5f73706c697400010b0101010204022401">} : (tensor<2x5xf32>, tensor<2xi32>, tensor<1xi32>) -> (tensor<2x2xf32>, tensor<2x3xf32>)
  func.return %3, %4 : tensor<2x2xf32>, tensor<2x3xf32>
}
// CHECK-LABEL: func.func @resolve_customop_splitv(
// CHECK-NOT: circle.custom(
// CHECK: circle.split_v({{.*}} -> (tensor<2x2xf32>, tensor<2x3xf32>)
// CHECK: func.return

// -----

func.func @resolve_customop_splitv_not(%0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = circle.custom(%0) {custom_code = "Erf"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %1 : tensor<2x3xf32>
}
// CHECK-LABEL: func.func @resolve_customop_splitv_not(
// CHECK: circle.custom({{.*}} -> tensor<2x3xf32>
// CHECK: func.return

// -----

func.func @resolve_customop_transpose_conv(%0: tensor<1x3x4x3xf32>) -> tensor<1x9x8x2xf32> {
  %1 = circle.const [0.7, -2.8, 1.0, -1.0, -1.7, 0.3, 0.7, -0.4, -1.1, 0.0, -0.1, 1.4, 0.7, 0.2, 1.1, -0.2, -0.9, 0.6, 0.6, -0.2, -0.8, 0.2, -2.5, 0.7, 0.5, -1.6, 0.1, -1.0, 0.8, -2.0, -0.9, 0.7, 1.2, -2.2, -0.5, 0.3] : tensor<2x3x2x3xf32>
  %2 = circle.const [-0.6, 1.6] : tensor<2xf32>
  %3 = circle.custom(%0, %1, %2) {custom_code = "Convolution2DTransposeBias", custom_options = #circle.blob<"0x010000000200000003000000">} : (tensor<1x3x4x3xf32>, tensor<2x3x2x3xf32>, tensor<2xf32>) -> tensor<1x9x8x2xf32>
  func.return %3 : tensor<1x9x8x2xf32>
}
// CHECK-LABEL: func.func @resolve_customop_transpose_conv(
// CHECK-NOT: circle.custom(
// CHECK: circle.transpose_conv({{.*}} -> tensor<1x9x8x2xf32>
// CHECK: func.return

// -----

func.func @resolve_customop_transpose_conv_not(%0: tensor<1x3x4x3xf32>) -> tensor<1x3x4x3xf32> {
  %1 = circle.custom(%0) {custom_code = "Erf"} : (tensor<1x3x4x3xf32>) -> tensor<1x3x4x3xf32>
  func.return %1 : tensor<1x3x4x3xf32>
}
// CHECK-LABEL: func.func @resolve_customop_transpose_conv_not(
// CHECK: circle.custom({{.*}} -> tensor<1x3x4x3xf32>
// CHECK: func.return
