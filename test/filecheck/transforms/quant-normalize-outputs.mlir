// RUN: odc-opt %s --split-input-file --quant-normalize-outputs='ranges="%S/Inputs/output-ranges.npz"' | filecheck %s
// RUN: odc-opt %s --split-input-file --quant-normalize-outputs | filecheck %s --check-prefix NOTHING

// Columns are from -1 to 1 until they get their units, in float.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2xf32> {
  %w = circle.const [0.02, 400.0] : tensor<2x1xf32>
  %b = circle.const [0.2, 500.0] : tensor<2xf32>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<2x1xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("y")
  func.return %0 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[W:.*]] = circle.const [0.19999999, 0.2] : tensor<2x1xf32>
// CHECK: %[[B:.*]] = circle.const [0.0, 0.0] : tensor<2xf32>
// CHECK: %[[N:.*]] = circle.fully_connected(%{{.*}}, %[[W]], %[[B]])
// CHECK: %[[S:.*]] = circle.const [0.1, 2000.0] : tensor<2xf32>
// CHECK: %[[M:.*]] = circle.mul(%[[N]], %[[S]]) {{.*}}quant.precision = "float"
// CHECK: %[[C:.*]] = circle.const [0.2, 500.0] : tensor<2xf32>
// CHECK: %[[A:.*]] = circle.add(%[[M]], %[[C]]) {{.*}}quant.precision = "float"
// CHECK: func.return %[[A]]
// NOTHING-NOT: circle.mul

// -----

// Columns of about one size share a scale well.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2xf32> {
  %w = circle.const [1.0, 2.0] : tensor<2x1xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32> loc("even")
  func.return %0 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: circle.mul

// -----

// An activation sees the units.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2xf32> {
  %w = circle.const [0.02, 400.0] : tensor<2x1xf32>
  %0 = circle.fully_connected(%x, %w) {activation = relu6} : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32> loc("y")
  func.return %0 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: circle.mul

// -----

// RELU does not see factors.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2xf32> {
  %w = circle.const [0.15, 1250.0] : tensor<2x1xf32>
  %0 = circle.fully_connected(%x, %w) {activation = relu} : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32> loc("y")
  func.return %0 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.const [0.5, 0.5] : tensor<2x1xf32>
// CHECK: %[[N:.*]] = circle.fully_connected({{.*}}activation = relu
// CHECK: %[[S:.*]] = circle.const [0.3, 2500.0] : tensor<2xf32>
// CHECK: %[[M:.*]] = circle.mul(%[[N]], %[[S]]) {{.*}}quant.precision = "float"
// CHECK-NOT: circle.add
// CHECK: func.return %[[M]]

// -----

// Something else reads the output.
func.func @main(%x: tensor<1x1xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>) {
  %w = circle.const [0.02, 400.0] : tensor<2x1xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32> loc("y")
  %1 = circle.abs(%0) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %0, %1 : tensor<1x2xf32>, tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: circle.mul

// -----

// Columns that two layers give are normalised in each; what joins them stays float.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2xf32> {
  %v = circle.const [0.02] : tensor<1x1xf32>
  %a = circle.const [0.2] : tensor<1xf32>
  %w = circle.const [400.0] : tensor<1x1xf32>
  %b = circle.const [500.0] : tensor<1xf32>
  %0 = circle.fully_connected(%x, %v, %a) : (tensor<1x1xf32>, tensor<1x1xf32>, tensor<1xf32>) -> tensor<1x1xf32> loc("p")
  %1 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<1x1xf32>, tensor<1xf32>) -> tensor<1x1xf32> loc("q")
  %2 = circle.concatenation(%0, %1) {axis = 1} : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x2xf32> loc("y")
  func.return %2 : tensor<1x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-COUNT-2: circle.mul({{.*}}quant.precision = "float"
// CHECK: circle.concatenation({{.*}}quant.precision = "float"

// -----

// A RESHAPE keeps the columns of its rows.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2x2xf32> {
  %w = circle.const [0.02, 400.0, 0.02, 400.0] : tensor<4x1xf32>
  %b = circle.const [0.2, 500.0, 0.2, 500.0] : tensor<4xf32>
  %s = circle.const [1, 2, 2] : tensor<3xi32>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<4x1xf32>, tensor<4xf32>) -> tensor<1x4xf32> loc("p")
  %1 = circle.reshape(%0, %s) : (tensor<1x4xf32>, tensor<3xi32>) -> tensor<1x2x2xf32> loc("y")
  func.return %1 : tensor<1x2x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.const [0.1, 2000.0, 0.1, 2000.0] : tensor<4xf32>
// CHECK: circle.reshape({{.*}}quant.precision = "float"

// -----

// Channels first: the layer's own channels have the units, and are moved after they got them.
func.func @main(%x: tensor<1x1x1x1xf32>) -> tensor<1x2x1x1xf32> {
  %w = circle.const [0.02, 400.0] : tensor<2x1x1x1xf32>
  %b = circle.const [0.2, 500.0] : tensor<2xf32>
  %p = circle.const [0, 3, 1, 2] : tensor<4xi32>
  %0 = circle.conv_2d(%x, %w, %b) {padding = valid, stride_h = 1, stride_w = 1} : (tensor<1x1x1x1xf32>, tensor<2x1x1x1xf32>, tensor<2xf32>) -> tensor<1x1x1x2xf32> loc("p")
  %1 = circle.transpose(%0, %p) : (tensor<1x1x1x2xf32>, tensor<4xi32>) -> tensor<1x2x1x1xf32> loc("planes")
  func.return %1 : tensor<1x2x1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[N:.*]] = circle.conv_2d
// CHECK: %[[S:.*]] = circle.const [0.1, 2000.0] : tensor<2xf32>
// CHECK: %[[M:.*]] = circle.mul(%[[N]], %[[S]]) {{.*}}quant.precision = "float"
// CHECK: %[[A:.*]] = circle.add(%[[M]]
// CHECK: circle.transpose(%[[A]]{{.*}}quant.precision = "float"

// -----

// A RESHAPE makes several channels one of the columns, each of which has its unit.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2x2xf32> {
  %w = circle.const [0.02, 0.02, 400.0, 400.0] : tensor<4x1xf32>
  %b = circle.const [0.2, 0.2, 500.0, 500.0] : tensor<4xf32>
  %s = circle.const [1, 2, 2] : tensor<3xi32>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<4x1xf32>, tensor<4xf32>) -> tensor<1x4xf32> loc("p")
  %1 = circle.reshape(%0, %s) : (tensor<1x4xf32>, tensor<3xi32>) -> tensor<1x2x2xf32> loc("rows")
  func.return %1 : tensor<1x2x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.const [0.1, 0.1, 2000.0, 2000.0] : tensor<4xf32>
// CHECK: circle.reshape({{.*}}quant.precision = "float"

// -----

// Columns that PACK makes of layers.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x2x1xf32> {
  %v = circle.const [0.02] : tensor<1x1xf32>
  %a = circle.const [0.2] : tensor<1xf32>
  %w = circle.const [400.0] : tensor<1x1xf32>
  %b = circle.const [500.0] : tensor<1xf32>
  %0 = circle.fully_connected(%x, %v, %a) : (tensor<1x1xf32>, tensor<1x1xf32>, tensor<1xf32>) -> tensor<1x1xf32> loc("p")
  %1 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<1x1xf32>, tensor<1xf32>) -> tensor<1x1xf32> loc("q")
  %2 = circle.pack(%0, %1) {values_count = 2, axis = 1} : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x2x1xf32> loc("rows")
  func.return %2 : tensor<1x2x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-COUNT-2: circle.mul({{.*}}quant.precision = "float"
// CHECK: circle.pack({{.*}}quant.precision = "float"

// -----

// A channel that has places in both columns has no unit.
func.func @main(%x: tensor<1x2x1x1xf32>) -> tensor<1x2x2xf32> {
  %w = circle.const [0.02, 400.0] : tensor<2x1x1x1xf32>
  %s = circle.const [1, 2, 2] : tensor<3xi32>
  %0 = circle.conv_2d(%x, %w) {padding = valid, stride_h = 1, stride_w = 1} : (tensor<1x2x1x1xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x1x2xf32> loc("p")
  %1 = circle.reshape(%0, %s) : (tensor<1x2x1x2xf32>, tensor<3xi32>) -> tensor<1x2x2xf32> loc("rows")
  func.return %1 : tensor<1x2x2xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK-NOT: circle.mul

// -----

// A single column far from zero.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x1xf32> {
  %w = circle.const [0.5] : tensor<1x1xf32>
  %b = circle.const [300.0] : tensor<1xf32>
  %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x1xf32>, tensor<1x1xf32>, tensor<1xf32>) -> tensor<1x1xf32> loc("kelvin")
  func.return %0 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.const [2.0] : tensor<1x1xf32>
// CHECK: circle.const [0.0] : tensor<1xf32>
// CHECK: circle.const [0.25] : tensor<1xf32>
// CHECK: circle.const [300.0] : tensor<1xf32>
