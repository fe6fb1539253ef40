// RUN: not odc-opt %s 2>&1 | filecheck %s
// RUN: odc-opt %s --disable-verify | filecheck %s --check-prefix=UNCHECKED

// CHECK: odc-opt: error: result must be float32[2], found float32[3] (op RELU, tensor 'y')
// UNCHECKED: circle.relu(%x) : (tensor<2xf32>) -> tensor<3xf32>
func.func @main(%x: tensor<2xf32>) {
  %y = circle.relu(%x) : (tensor<2xf32>) -> tensor<3xf32> loc("y")
  func.return
}
