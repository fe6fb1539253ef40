// RUN: odc-opt %s --split-input-file -p quant-propagate-params | filecheck %s

// Softmax fixes its result; reshape hands on what it gets, forwards.
builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x4xf32>, %n: tensor<2xi32>) -> tensor<2x2xf32> attributes {
    quant.arguments = [!quant.uniform<i8:f32, 0.5:3>, unit]
  } {
    %0 = circle.softmax(%x) {beta = 1.0} attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.5:3>], quant.results = [!quant.uniform<i8:f32, 0.002:-128>]
    } : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %1 = circle.reshape(%0, %n) attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.002:-128>, unit], quant.results = [!quant.uniform<i8:f32, 0.001:-128>]
    } : (tensor<1x4xf32>, tensor<2xi32>) -> tensor<2x2xf32>
    func.return %1 : tensor<2x2xf32>
  }
}
// CHECK: circle.softmax({{.*}} quant.results = [!quant.uniform<i8:f32, 0.00390625:-128>]
// CHECK: circle.reshape({{.*}} attributes {quant.operands = [!quant.uniform<i8:f32, 0.00390625:-128>, unit], quant.results = [!quant.uniform<i8:f32, 0.00390625:-128>]}

// -----

// A concatenation hands its parameters back to %a, which nobody else uses; %b is requantised for it alone.
builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2xf32>) -> (tensor<1x4xf32>, tensor<1x2xf32>) attributes {
    quant.arguments = [!quant.uniform<i8:f32, 0.5:3>]
  } {
    %a = circle.neg(%x) attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.5:3>], quant.results = [!quant.uniform<i8:f32, 0.5:-4>]
    } : (tensor<1x2xf32>) -> tensor<1x2xf32>
    %b = circle.abs(%x) attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.5:3>], quant.results = [!quant.uniform<i8:f32, 0.25:-128>]
    } : (tensor<1x2xf32>) -> tensor<1x2xf32>
    %c = circle.concatenation(%a, %b) {axis = 1} attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.5:-4>, !quant.uniform<i8:f32, 0.25:-128>],
      quant.results = [!quant.uniform<i8:f32, 0.75>]
    } : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x4xf32>
    func.return %c, %b : tensor<1x4xf32>, tensor<1x2xf32>
  }
}
// CHECK: circle.neg({{.*}} quant.results = [!quant.uniform<i8:f32, 0.75>]
// CHECK: circle.abs({{.*}} quant.results = [!quant.uniform<i8:f32, 0.25:-128>]
// CHECK: circle.concatenation({{.*}}quant.operands = [!quant.uniform<i8:f32, 0.75>, !quant.uniform<i8:f32, 0.75>], quant.results = [!quant.uniform<i8:f32, 0.75>]

// -----

// An operator of another precision asks for its operand in its own type; its result has that type for everybody, and
// who wants another one asks for that.
builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5:3>]} {
    %0 = circle.neg(%x) attributes {
      quant.precision = "int16x8",
      quant.operands = [!quant.uniform<i16:f32, 0.001>], quant.results = [!quant.uniform<i16:f32, 0.002>]
    } : (tensor<1x2xf32>) -> tensor<1x2xf32>
    %1 = circle.abs(%0) attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.25>], quant.results = [!quant.uniform<i8:f32, 0.125:-128>]
    } : (tensor<1x2xf32>) -> tensor<1x2xf32>
    func.return %1 : tensor<1x2xf32>
  }
}
// CHECK: circle.neg({{.*}}quant.operands = [!quant.uniform<i16:f32, 0.001>], quant.results = [!quant.uniform<i16:f32, 0.002>]
// CHECK: circle.abs({{.*}}quant.operands = [!quant.uniform<i8:f32, 0.25>], quant.results = [!quant.uniform<i8:f32, 0.125:-128>]

// -----

// What no kernel can run stays real, and so does what only moves values around it. The weight scale of a channel that
// is switched off grows until the bias fits.
builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2xf32>, %n: tensor<2xi32>) -> tensor<2x1xf32> attributes {
    quant.arguments = [!quant.uniform<i8:f32, 0.5:3>, unit]
  } {
    %w = circle.const [0.0, 0.0, 1.27, 0.0] : tensor<2x2xf32>
    %b = circle.const [2147483648.0, 1.0] : tensor<2xf32>
    %0 = circle.fully_connected(%x, %w, %b) attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.5:3>, !quant.uniform<i8:f32:0, {1.0e-10, 0.01}>, unit],
      quant.results = [!quant.uniform<i8:f32, 1.0e+07>]
    } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
    %1 = circle.sign(%0) attributes {
      quant.operands = [!quant.uniform<i8:f32, 1.0e+07>], quant.results = [!quant.uniform<i8:f32, 0.01>]
    } : (tensor<1x2xf32>) -> tensor<1x2xf32>
    %2 = circle.reshape(%1, %n) attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.01>, unit], quant.results = [!quant.uniform<i8:f32, 0.01>]
    } : (tensor<1x2xf32>, tensor<2xi32>) -> tensor<2x1xf32>
    func.return %2 : tensor<2x1xf32>
  }
}
// CHECK: circle.fully_connected({{.*}} !quant.uniform<i8:f32:0, {2.00000{{[0-9]*}}, 0.01}>
// CHECK: circle.sign({{.*}} attributes {quant.operands = [f32], quant.results = [f32], quant.reason = "{{.*}}int8{{.*}}"}
// CHECK: circle.reshape({{.*}} attributes {quant.operands = [f32, unit], quant.results = [f32], quant.reason = "all that it takes from and gives to stays real"}

// -----

// Nothing happens without a scheme.
func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %0 = circle.neg(%x) : (tensor<1x2xf32>) -> tensor<1x2xf32>
  func.return %0 : tensor<1x2xf32>
}
// CHECK: circle.neg(%x) : (tensor<1x2xf32>) -> tensor<1x2xf32>

// -----

// Computed weights are symmetric for the operator that multiplies by them, whatever they are elsewhere.
builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2x2x1xf32>, %w: tensor<1x1x1x1xf32>) -> tensor<1x2x2x1xf32> attributes {
    quant.arguments = [!quant.uniform<i8:f32, 0.5:3>, !quant.uniform<i8:f32, 0.25:-2>]
  } {
    %0 = circle.conv_2d(%x, %w) {padding = same, stride = [1, 1]} attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.5:3>, !quant.uniform<i8:f32, 0.26>], quant.results = [!quant.uniform<i8:f32, 0.5:3>]
    } : (tensor<1x2x2x1xf32>, tensor<1x1x1x1xf32>) -> tensor<1x2x2x1xf32>
    func.return %0 : tensor<1x2x2x1xf32>
  }
}
// CHECK: circle.conv_2d
// CHECK-SAME: quant.operands = [!quant.uniform<i8:f32, 0.5:3>, !quant.uniform<i8:f32, 0.26>]
