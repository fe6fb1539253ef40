// RUN: odc-opt %s --split-input-file -p "quant-attach-ranges{records=\"%S/Inputs/quant-attach-ranges.json\"}" | filecheck %s
// RUN: odc-opt %s --split-input-file -p quant-attach-ranges | filecheck %s --check-prefix=WITHOUT

// Ranges go into the types of arguments, results and the function; whole numbers have none.
func.func @main(%x: tensor<1x4xf32> loc("x"), %n: tensor<4xi32> loc("elsewhere")) -> tensor<1x4xf32> {
  %0 = circle.relu(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("relu")
  %1 = circle.neg(%0) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("never seen")
  func.return %0 : tensor<1x4xf32>
}
// CHECK: func.func @main(%x: tensor<1x4xf32, #circle.qparams<min = [-1.0], max = [1.55]>>{{.*}}, %n: tensor<4xi32>
// CHECK-SAME: -> tensor<1x4xf32, #circle.qparams<min = [0.0], max = [1.55]>> {
// CHECK-NEXT: circle.relu(%x) : {{.*}} -> tensor<1x4xf32, #circle.qparams<min = [0.0], max = [1.55]>>
// CHECK-NEXT: circle.neg({{.*}} -> tensor<1x4xf32>
// WITHOUT: circle.relu(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32>

// -----

// What a file has already stays where nothing was recorded, and is replaced where something was.
func.func @main(%x: tensor<4xf32, #circle.qparams<min = [-9.0], max = [9.0]>> loc("x")) -> tensor<4xf32, #circle.qparams<min = [-8.0], max = [8.0]>> {
  %0 = circle.neg(%x) : (tensor<4xf32, #circle.qparams<min = [-9.0], max = [9.0]>>) -> tensor<4xf32, #circle.qparams<min = [-8.0], max = [8.0]>> loc("neg")
  func.return %0 : tensor<4xf32, #circle.qparams<min = [-8.0], max = [8.0]>>
}
// CHECK: circle.neg(%x) : (tensor<4xf32, #circle.qparams<min = [-1.0], max = [1.55]>>) -> tensor<4xf32, #circle.qparams<min = [-8.0], max = [8.0]>>
// WITHOUT: circle.neg(%x) : (tensor<4xf32, #circle.qparams<min = [-9.0], max = [9.0]>>)
