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

// What no kernel can run stays float, and so do operators that only move values around it. The weight scale of a channel that
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
// CHECK: circle.fully_connected({{.*}} !quant.uniform<i8:f32:0, {2.0000{{[0-9]*}}, 0.01}>
// CHECK: circle.sign({{.*}} attributes {quant.operands = [f32], quant.results = [f32], quant.reason = "{{.*}}int8{{.*}}"}
// CHECK: circle.reshape({{.*}} attributes {quant.operands = [f32, unit], quant.results = [f32], quant.reason = "all operators before and after it stay float"}

// -----

// Sums may reach 1.024e+08, and 2^30 steps of the result must hold them; its end, where the activation cuts off, keeps a
// code. What reads the result takes the coarser codes.
builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> attributes {quant.arguments = [!quant.uniform<i8:f32, 100.0>]} {
    %w = circle.const [4000.0, 4000.0, 1.0, 1.0] : tensor<2x2xf32>
    %0 = circle.fully_connected(%x, %w) {fused_activation_function = relu6} attributes {
      quant.operands = [!quant.uniform<i8:f32, 100.0>, !quant.uniform<i8:f32:0, {31.5, 0.00787}>],
      quant.results = [!quant.uniform<i8:f32, 0.0235:-128>]
    } : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
    %1 = circle.neg(%0) attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.0235:-128>], quant.results = [!quant.uniform<i8:f32, 0.0235>]
    } : (tensor<1x2xf32>) -> tensor<1x2xf32>
    func.return %1 : tensor<1x2xf32>
  }
}
// CHECK: circle.fully_connected({{.*}}quant.results = [!quant.uniform<i8:f32, 0.09665{{[0-9]*}}:-128>]
// CHECK: circle.neg({{.*}}quant.operands = [!quant.uniform<i8:f32, 0.09665{{[0-9]*}}:-128>]

// -----

// If not even the end of the range has a code, the operator stays float.
builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2xf32>) -> tensor<1x1xf32> attributes {quant.arguments = [!quant.uniform<i8:f32, 1.0e+05>]} {
    %w = circle.const [1000.0, 0.0] : tensor<1x2xf32>
    %0 = circle.fully_connected(%x, %w) {fused_activation_function = relu6} attributes {
      quant.operands = [!quant.uniform<i8:f32, 1.0e+05>, !quant.uniform<i8:f32:0, {7.874}>],
      quant.results = [!quant.uniform<i8:f32, 0.0235:-128>]
    } : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x1xf32>
    func.return %0 : tensor<1x1xf32>
  }
}
// CHECK: circle.fully_connected({{.*}}quant.reason = "its sums exceed its result's range by more than kernels can scale

// -----

// An NPU takes no step of a sum of 16-bit codes for more than 126 of the result. Another reader does.
builtin.module attributes {quant.scheme = "int16x8", quant.reader = "npu"} {
  func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> attributes {quant.arguments = [!quant.uniform<i16:f32, 1.0>]} {
    %w = circle.const [12.7, 0.0, 1.27, 0.0] : tensor<2x2xf32>
    %0 = circle.fully_connected(%x, %w) attributes {
      quant.operands = [!quant.uniform<i16:f32, 1.0>, !quant.uniform<i8:f32:0, {0.1, 0.01}>],
      quant.results = [!quant.uniform<i16:f32, 0.0006>]
    } : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
    func.return %0 : tensor<1x2xf32>
  }
}
// CHECK: circle.fully_connected({{.*}}quant.results = [!quant.uniform<i16:f32, 0.00079{{[0-9]*}}>]

// -----

builtin.module attributes {quant.scheme = "int16x8"} {
  func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> attributes {quant.arguments = [!quant.uniform<i16:f32, 1.0>]} {
    %w = circle.const [12.7, 0.0, 1.27, 0.0] : tensor<2x2xf32>
    %0 = circle.fully_connected(%x, %w) attributes {
      quant.operands = [!quant.uniform<i16:f32, 1.0>, !quant.uniform<i8:f32:0, {0.1, 0.01}>],
      quant.results = [!quant.uniform<i16:f32, 0.0006>]
    } : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
    func.return %0 : tensor<1x2xf32>
  }
}
// CHECK: circle.fully_connected({{.*}}quant.results = [!quant.uniform<i16:f32, 0.0006>]

// -----

// A limit behind a maximum limits what it is of, not what is averaged before it: that is requantised.
builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2x2x1xf32>, %y: tensor<1x2x2x1xf32>) -> (tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>) attributes {
    quant.arguments = [!quant.uniform<i8:f32, 0.125>, !quant.uniform<i8:f32, 0.125>]
  } {
    %c = circle.const [1.0] : tensor<1xf32>
    %0 = circle.average_pool_2d(%x) {padding = valid, stride = [2, 2], filter = [2, 2]} attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.125>], quant.results = [!quant.uniform<i8:f32, 0.125>]
    } : (tensor<1x2x2x1xf32>) -> tensor<1x1x1x1xf32, #circle.qparams<min = [-16.0], max = [15.0]>>
    %1 = circle.minimum(%0, %c) attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.125>, !quant.uniform<i8:f32, 0.0625>], quant.results = [!quant.uniform<i8:f32, 0.0625>]
    } : (tensor<1x1x1x1xf32, #circle.qparams<min = [-16.0], max = [15.0]>>, tensor<1xf32>) -> tensor<1x1x1x1xf32>
    %2 = circle.max_pool_2d(%y) {padding = valid, stride = [2, 2], filter = [2, 2]} attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.125>], quant.results = [!quant.uniform<i8:f32, 0.125>]
    } : (tensor<1x2x2x1xf32>) -> tensor<1x1x1x1xf32>
    %3 = circle.minimum(%2, %c) attributes {
      quant.operands = [!quant.uniform<i8:f32, 0.125>, !quant.uniform<i8:f32, 0.0625>], quant.results = [!quant.uniform<i8:f32, 0.0625>]
    } : (tensor<1x1x1x1xf32>, tensor<1xf32>) -> tensor<1x1x1x1xf32>
    func.return %1, %3 : tensor<1x1x1x1xf32>, tensor<1x1x1x1xf32>
  }
}
// CHECK: circle.average_pool_2d({{.*}}quant.results = [!quant.uniform<i8:f32, 0.125>]
// CHECK: circle.minimum({{.*}}quant.operands = [!quant.uniform<i8:f32, 0.0625>, !quant.uniform<i8:f32, 0.0625>]
// CHECK: circle.max_pool_2d({{.*}}quant.results = [!quant.uniform<i8:f32, 0.0625>]

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
