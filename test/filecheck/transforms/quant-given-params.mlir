// RUN: odc-opt %s --split-input-file -p "quant-assign-params{scheme=int8},quant-propagate-params" | filecheck %s
// RUN: odc-opt %s --split-input-file -p "quant-assign-params{scheme=uint8},quant-propagate-params" | filecheck %s --check-prefix UNSIGNED
// RUN: odc-opt %s --split-input-file -p "quant-assign-params{scheme=int8},quant-propagate-params,convert-circle-to-quant" | filecheck %s --check-prefix AFTER

// What is given wins over ranges, for an argument, for weights and for a result, and goes from a result that is moved
// to what it is moved from. Codes of uint8 are those of int8 moved by 128; signed weights are symmetric, unsigned ones not.
builtin.module attributes {quant.given = {
    "x" = !quant.uniform<i8:f32, 0.5:3>, "w" = !quant.uniform<i8:f32, 0.25>, "y/moved:0" = !quant.uniform<i8:f32, 2.0:-7>}} {
  func.func @main(%x: tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.0]>> loc("x")) -> tensor<2x1xf32> {
    %w = circle.const [1.0, -1.0, 0.5, 1.0] : tensor<2x2xf32> loc("w")
    %b = circle.const [1.0, -1.0] : tensor<2xf32>
    %s = circle.const [2, 1] : tensor<2xi32>
    %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.0]>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32, #circle.qparams<min = [-3.0], max = [3.0]>>
    %1 = circle.reshape(%0, %s) : (tensor<1x2xf32, #circle.qparams<min = [-3.0], max = [3.0]>>, tensor<2xi32>) -> tensor<2x1xf32> loc("y/moved:0")
    func.return %1 : tensor<2x1xf32>
  }
}
// CHECK: quant.arguments = [!quant.uniform<i8:f32, 0.5:3>]
// CHECK: circle.fully_connected{{.*}}quant.operands = [!quant.uniform<i8:f32, 0.5:3>, !quant.uniform<i8:f32, 0.25>, unit], quant.results = [!quant.uniform<i8:f32, 2.0:-7>]
// CHECK: circle.reshape{{.*}}quant.operands = [!quant.uniform<i8:f32, 2.0:-7>, unit], quant.results = [!quant.uniform<i8:f32, 2.0:-7>]
// UNSIGNED: quant.arguments = [!quant.uniform<u8:f32, 0.5:131>]
// UNSIGNED: circle.fully_connected{{.*}}quant.operands = [!quant.uniform<u8:f32, 0.5:131>, !quant.uniform<u8:f32, 0.25:128>, unit], quant.results = [!quant.uniform<u8:f32, 2.0:121>]
// AFTER-NOT: quant.given

// -----

// Not where the operator works on codes of another type, where its definition says otherwise, or where kernels would not
// take it: int16 has the zero point 0.
builtin.module attributes {quant.given = {
    "x" = !quant.uniform<i16:f32, 0.5>, "y" = !quant.uniform<i8:f32, 0.5:3>}} {
  func.func @main(%x: tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.0]>> loc("x")) -> tensor<1x2xf32> {
    %0 = circle.softmax(%x) {beta = 1.0} : (tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.0]>>) -> tensor<1x2xf32> loc("y")
    func.return %0 : tensor<1x2xf32>
  }
}
// CHECK: quant.arguments = [!quant.uniform<i8:f32, 0.00784
// CHECK: quant.results = [!quant.uniform<i8:f32, 0.00390625:-128>]
