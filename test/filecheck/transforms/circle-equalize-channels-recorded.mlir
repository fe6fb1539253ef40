// RUN: odc-opt %s --circle-equalize-channels='ranges="%S/Inputs/channel-ranges.npz"' | filecheck %s
// RUN: not odc-opt %s --circle-equalize-channels='ranges="%S/Inputs/channel-ranges-three.npz"' 2>&1 | filecheck %s --check-prefix THREE

// What the channels of the activation reach, 1 and 64, counts instead of the weights that make them.
func.func @main(%x: tensor<1x1xf32>) -> tensor<1x1xf32> {
  %w = circle.const [8.0, 8.0] : tensor<2x1xf32>
  %v = circle.const [16.0, 4.0] : tensor<1x2xf32>
  %0 = circle.fully_connected(%x, %w) : (tensor<1x1xf32>, tensor<2x1xf32>) -> tensor<1x2xf32> loc("front")
  %1 = circle.fully_connected(%0, %v) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32> loc("back")
  func.return %1 : tensor<1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: circle.const [32.0, 2.0] : tensor<2x1xf32>
// CHECK: circle.const [4.0, 16.0] : tensor<1x2xf32>
// THREE: error: FULLY_CONNECTED 'front' has 2 channels, its ranges are for 3
