// RUN: odc-opt %s -p 'circle-fuse-patterns{circle=true}' | filecheck %s

// A root mean square in pieces, with a factor for each channel.
func.func @rms(%x: tensor<1x3x4xf32>) -> tensor<1x3x4xf32> {
  %axis = circle.const [-1] : tensor<1xi32>
  %eps = circle.const [0.01] : tensor<1xf32>
  %gamma = circle.const [1.0, 2.0, 0.5, -1.0] : tensor<4xf32>
  %0 = circle.mul(%x, %x) : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
  %1 = circle.mean(%0, %axis) {keep_dims = true} : (tensor<1x3x4xf32>, tensor<1xi32>) -> tensor<1x3x1xf32>
  %2 = circle.add(%1, %eps) : (tensor<1x3x1xf32>, tensor<1xf32>) -> tensor<1x3x1xf32>
  %3 = circle.rsqrt(%2) : (tensor<1x3x1xf32>) -> tensor<1x3x1xf32>
  %4 = circle.mul(%x, %3) : (tensor<1x3x4xf32>, tensor<1x3x1xf32>) -> tensor<1x3x4xf32>
  %5 = circle.mul(%4, %gamma) : (tensor<1x3x4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
  func.return %5 : tensor<1x3x4xf32>
}
// CHECK-LABEL: func.func @rms(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: %[[G:.*]] = circle.const [1.0, 2.0, 0.5, -1.0]
// CHECK-NEXT: %[[Y:.*]] = circle.rms_norm(%[[X]], %[[G]]) {epsilon = {{.*}}}
// CHECK-NEXT: func.return %[[Y]]

// A factor for each channel behind RMS_NORM goes into its gamma.
func.func @scaled(%x: tensor<1x3x2xf32>) -> tensor<1x3x2xf32> {
  %gamma = circle.const [1.0, 2.0] : tensor<2xf32>
  %more = circle.const [3.0, 4.0] : tensor<2xf32>
  %0 = circle.rms_norm(%x, %gamma) {epsilon = 0.01} : (tensor<1x3x2xf32>, tensor<2xf32>) -> tensor<1x3x2xf32>
  %1 = circle.mul(%0, %more) : (tensor<1x3x2xf32>, tensor<2xf32>) -> tensor<1x3x2xf32>
  func.return %1 : tensor<1x3x2xf32>
}
// CHECK-LABEL: func.func @scaled(
// CHECK: %[[G:.*]] = circle.const [3.0, 8.0]
// CHECK-NEXT: circle.rms_norm(%{{.*}}, %[[G]])

// INSTANCE_NORM has no quantised form, its parts have; what normalises rows stays.
func.func @instance(%x: tensor<1x4x4x2xf32>, %r: tensor<1x2x4xf32>) -> (tensor<1x4x4x2xf32>, tensor<1x2x4xf32>) {
  %gamma = circle.const [1.0, 2.0] : tensor<2xf32>
  %beta = circle.const [3.0, 4.0] : tensor<2xf32>
  %0 = circle.instance_norm(%x, %gamma, %beta) {epsilon = 0.5, activation = relu} : (tensor<1x4x4x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x4x4x2xf32>
  %1 = circle.instance_norm(%r, %gamma, %beta) {epsilon = 0.5} : (tensor<1x2x4xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x4xf32>
  func.return %0, %1 : tensor<1x4x4x2xf32>, tensor<1x2x4xf32>
}
// CHECK-LABEL: func.func @instance(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: %[[G:.*]] = circle.const [1.0, 2.0]
// CHECK: %[[B:.*]] = circle.const [3.0, 4.0]
// CHECK: %[[AXES:.*]] = circle.const [1, 2] : tensor<2xi32>
// CHECK: %[[EPSILON:.*]] = circle.const [0.5] : tensor<f32>
// CHECK-NEXT: %[[MEAN:.*]] = circle.mean(%[[X]], %[[AXES]]) {keep_dims = true}
// CHECK-NEXT: %[[SQUARES:.*]] = circle.squared_difference(%[[X]], %[[MEAN]])
// CHECK-NEXT: %[[VARIANCE:.*]] = circle.mean(%[[SQUARES]], %[[AXES]]) {keep_dims = true}
// CHECK-NEXT: %[[SPREAD:.*]] = circle.add(%[[VARIANCE]], %[[EPSILON]])
// CHECK-NEXT: %[[ROOT:.*]] = circle.rsqrt(%[[SPREAD]])
// CHECK-NEXT: %[[FACTOR:.*]] = circle.mul(%[[ROOT]], %[[G]])
// CHECK-NEXT: %[[CENTRE:.*]] = circle.sub(%[[X]], %[[MEAN]])
// CHECK-NEXT: %[[SCALED:.*]] = circle.mul(%[[CENTRE]], %[[FACTOR]])
// CHECK-NEXT: circle.add(%[[SCALED]], %[[B]]) {activation = relu}
// CHECK-NEXT: circle.instance_norm

// A division by the norm, as PyTorch's normalize. A bound that counts stays.
func.func @unit(%x: tensor<1x3x4xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x4xf32>) {
  %axis = circle.const [2] : tensor<1xi32>
  %tiny = circle.const [1.0e-12] : tensor<f32>
  %large = circle.const [0.01] : tensor<f32>
  %shape = circle.const [1, 3, 4] : tensor<3xi32>
  %0 = circle.mul(%x, %x) : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
  %1 = circle.sum(%0, %axis) {keep_dims = true} : (tensor<1x3x4xf32>, tensor<1xi32>) -> tensor<1x3x1xf32>
  %2 = circle.sqrt(%1) : (tensor<1x3x1xf32>) -> tensor<1x3x1xf32>
  %3 = circle.maximum(%2, %tiny) : (tensor<1x3x1xf32>, tensor<f32>) -> tensor<1x3x1xf32>
  %4 = circle.broadcast_to(%3, %shape) : (tensor<1x3x1xf32>, tensor<3xi32>) -> tensor<1x3x4xf32>
  %5 = circle.div(%x, %4) : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
  %6 = circle.maximum(%2, %large) : (tensor<1x3x1xf32>, tensor<f32>) -> tensor<1x3x1xf32>
  %7 = circle.div(%x, %6) : (tensor<1x3x4xf32>, tensor<1x3x1xf32>) -> tensor<1x3x4xf32>
  func.return %5, %7 : tensor<1x3x4xf32>, tensor<1x3x4xf32>
}
// CHECK-LABEL: func.func @unit(
// CHECK-SAME: %[[X:[^:]*]]:
// CHECK: %[[G:.*]] = circle.const [0.5, 0.5, 0.5, 0.5]
// CHECK: %[[Y:.*]] = circle.rms_norm(%[[X]], %[[G]]) {epsilon = 2.5e-25}
// CHECK: %[[Z:.*]] = circle.div(%[[X]],
// CHECK-NEXT: func.return %[[Y]], %[[Z]]
