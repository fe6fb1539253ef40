// RUN: odc-opt %s --split-input-file -p "quant-narrow-ranges{bits=8}" | filecheck %s
// RUN: odc-opt %s --split-input-file -p quant-narrow-ranges | filecheck %s --check-prefix=WITHOUT

// All below -3 becomes 0, and a step of codes is kept beyond that; above nothing is flat.
func.func @main(%x: tensor<1x4xf32, #circle.qparams<min = [-9.0], max = [6.0]>>) -> tensor<1x4xf32> {
  %0 = circle.hard_swish(%x) : (tensor<1x4xf32, #circle.qparams<min = [-9.0], max = [6.0]>>) -> tensor<1x4xf32>
  func.return %0 : tensor<1x4xf32>
}
// CHECK: func.func @main(%x: tensor<1x4xf32, #circle.qparams<min = [-3.0{{[0-9]*}}], max = [6.0]>>)
// WITHOUT: func.func @main(%x: tensor<1x4xf32, #circle.qparams<min = [-9.0], max = [6.0]>>)

// -----

// Both ends, of a value that is moved before; what another reader tells apart, and what is returned, stays.
func.func @main(%x: tensor<1x4xf32>) -> (tensor<4xf32>, tensor<1x4xf32, #circle.qparams<min = [0.0], max = [20.0]>>) {
  %s = circle.const [4] : tensor<1xi32>
  %0 = circle.neg(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32, #circle.qparams<min = [-20.0], max = [20.0]>>
  %1 = circle.reshape(%0, %s) : (tensor<1x4xf32, #circle.qparams<min = [-20.0], max = [20.0]>>, tensor<1xi32>) -> tensor<4xf32, #circle.qparams<min = [-20.0], max = [20.0]>>
  %2 = circle.tanh(%1) : (tensor<4xf32, #circle.qparams<min = [-20.0], max = [20.0]>>) -> tensor<4xf32>
  %3 = circle.abs(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32, #circle.qparams<min = [0.0], max = [20.0]>>
  %4 = circle.tanh(%3) : (tensor<1x4xf32, #circle.qparams<min = [0.0], max = [20.0]>>) -> tensor<1x4xf32>
  func.return %2, %3 : tensor<4xf32>, tensor<1x4xf32, #circle.qparams<min = [0.0], max = [20.0]>>
}
// CHECK: circle.neg(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32, #circle.qparams<min = [-10.0{{[0-9]*}}], max = [10.0{{[0-9]*}}]>>
// CHECK-NEXT: circle.reshape({{.*}} -> tensor<4xf32, #circle.qparams<min = [-10.0{{[0-9]*}}], max = [10.0{{[0-9]*}}]>>
// CHECK: circle.abs(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32, #circle.qparams<min = [0.0], max = [20.0]>>

// -----

// One function of three operators, each of which alone tells values below -3 apart, or leaves that to the next.
func.func @main(%x: tensor<1x4xf32, #circle.qparams<min = [-30.0], max = [6.0]>>) -> tensor<1x4xf32> {
  %c = circle.const [3.0] : tensor<1xf32>
  %0 = circle.add(%x, %c) : (tensor<1x4xf32, #circle.qparams<min = [-30.0], max = [6.0]>>, tensor<1xf32>) -> tensor<1x4xf32, #circle.qparams<min = [-27.0], max = [9.0]>>
  %1 = circle.relu6(%0) : (tensor<1x4xf32, #circle.qparams<min = [-27.0], max = [9.0]>>) -> tensor<1x4xf32>
  %2 = circle.mul(%x, %1) : (tensor<1x4xf32, #circle.qparams<min = [-30.0], max = [6.0]>>, tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %2 : tensor<1x4xf32>
}
// CHECK: func.func @main(%x: tensor<1x4xf32, #circle.qparams<min = [-3.0{{[0-9]*}}], max = [6.0]>>)
// CHECK: circle.add(%x, {{.*}} -> tensor<1x4xf32, #circle.qparams<min = [-0.0{{[0-9]*}}], max = [6.0{{[0-9]*}}]>>

// -----

// Nearly flat is not flat: what reads the logarithm tells all of it apart.
func.func @main(%x: tensor<1x4xf32, #circle.qparams<min = [-30.0], max = [6.0]>>) -> tensor<1x4xf32> {
  %0 = circle.logistic(%x) : (tensor<1x4xf32, #circle.qparams<min = [-30.0], max = [6.0]>>) -> tensor<1x4xf32>
  %1 = circle.log(%0) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %1 : tensor<1x4xf32>
}
// CHECK: func.func @main(%x: tensor<1x4xf32, #circle.qparams<min = [-30.0], max = [6.0]>>)

// -----

// Constants for each channel make a function for each; values without a range, and those all of which are flat, stay.
func.func @main(%x: tensor<1x2xf32, #circle.qparams<min = [-30.0], max = [6.0]>>, %y: tensor<1x2xf32>, %z: tensor<1x2xf32, #circle.qparams<min = [-9.0], max = [-4.0]>>) -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>) {
  %c = circle.const [1.0, 2.0] : tensor<2xf32>
  %0 = circle.maximum(%x, %c) : (tensor<1x2xf32, #circle.qparams<min = [-30.0], max = [6.0]>>, tensor<2xf32>) -> tensor<1x2xf32>
  %1 = circle.relu(%y) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  %2 = circle.hard_swish(%z) : (tensor<1x2xf32, #circle.qparams<min = [-9.0], max = [-4.0]>>) -> tensor<1x2xf32>
  func.return %0, %1, %2 : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>
}
// CHECK: func.func @main(%x: tensor<1x2xf32, #circle.qparams<min = [-30.0], max = [6.0]>>, %y: tensor<1x2xf32>, %z: tensor<1x2xf32, #circle.qparams<min = [-9.0], max = [-4.0]>>)
