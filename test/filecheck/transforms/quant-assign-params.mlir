// RUN: odc-opt %s --split-input-file -p "quant-assign-params{scheme=uint8}" | filecheck %s
// RUN: odc-opt %s --split-input-file -p "quant-assign-params{scheme=int8 granularity=tensor overrides=\"two:float,three:int16x8\"}" | filecheck %s --check-prefix=INT8
// RUN: odc-opt %s --split-input-file -p "quant-assign-params{config=\"%S/Inputs/quant-assign-params.json\"}" | filecheck %s --check-prefix=CONFIG
// RUN: odc-opt %s --split-input-file -p quant-assign-params | filecheck %s --check-prefix=WITHOUT

// Values by their ranges, weights by their contents, biases and whole numbers not at all.
!x = tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.55]>>
!y = tensor<1x2xf32, #circle.qparams<min = [0.0], max = [2.55]>>
func.func @main(%x: !x, %n: tensor<2xi32>) -> !y {
  %w = circle.const [1.27, -1.27, 0.0, 2.55] : tensor<2x2xf32>
  %b = circle.const [1.0, 2.0] : tensor<2xf32>
  %0 = circle.fully_connected(%x, %w, %b) : (!x, tensor<2x2xf32>, tensor<2xf32>) -> !y loc("one")
  %1 = circle.reshape(%0, %n) : (!y, tensor<2xi32>) -> !y loc("two")
  %2 = circle.add(%1, %b) : (!y, tensor<2xf32>) -> !y loc("three")
  func.return %2 : !y
}
// CHECK: builtin.module attributes {quant.scheme = "uint8", quant.granularity = "channel", quant.weights = "asymmetric"}
// CHECK: quant.arguments = [!quant.uniform<u8:f32, 0.01:100>, unit]
// CHECK: circle.fully_connected({{.*}}) attributes
// CHECK-SAME: quant.operands = [!quant.uniform<u8:f32, 0.01:100>, !quant.uniform<u8:f32:0, {0.00996{{[0-9]*}}:128, 0.01}>, unit]
// CHECK-SAME: quant.results = [!quant.uniform<u8:f32, 0.01>]
// CHECK: circle.reshape({{.*}} attributes {quant.operands = [!quant.uniform<u8:f32, 0.01>, unit], quant.results = [!quant.uniform<u8:f32, 0.01>]}
// CHECK: circle.add({{.*}}quant.operands = [!quant.uniform<u8:f32, 0.01>, !quant.uniform<u8:f32, 0.007843{{[0-9]*}}>], quant.results

// INT8: quant.arguments = [!quant.uniform<i8:f32, 0.01:-28>, unit]
// INT8: circle.fully_connected({{.*}}quant.operands = [!quant.uniform<i8:f32, 0.01:-28>, !quant.uniform<i8:f32, 0.020078{{[0-9]*}}>, unit]
// INT8: circle.reshape({{.*}} attributes {quant.precision = "float", quant.operands = [f32, unit], quant.results = [f32], quant.reason = "float was requested"}
// INT8: circle.add({{.*}} attributes {quant.precision = "int16x8", quant.operands = [!quant.uniform<i16:f32, 7.78{{[0-9e-]*}}>, !quant.uniform<i16:f32, 6.10{{[0-9e-]*}}>], quant.results = [!quant.uniform<i16:f32, 7.78{{[0-9e-]*}}>]}

// CONFIG: quant.scheme = "uint8"
// CONFIG: circle.reshape({{.*}} attributes {quant.precision = "int16", quant.operands = [!quant.uniform<i16:f32, {{[0-9.e-]*}}>, unit]

// WITHOUT-NOT: quant

// -----

// An operator that needs a range which nobody recorded stays real, one that moves values has its operand's, and one
// that no codes can stand for says so.
!x = tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.55]>>
func.func @main(%x: !x, %n: tensor<2xi32>) -> tensor<1x2xf32> {
  %0 = circle.reshape(%x, %n) : (!x, tensor<2xi32>) -> tensor<1x2xf32> loc("two")
  %1 = circle.neg(%0) : (tensor<1x2xf32>) -> tensor<1x2xf32> loc("three")
  %2 = circle.cast(%x) : (!x) -> tensor<1x2xi32> loc("cast")
  func.return %1 : tensor<1x2xf32>
}
// CHECK: circle.reshape({{.*}} quant.results = [!quant.uniform<u8:f32, 0.01:100>]
// CHECK: circle.neg({{.*}} attributes {quant.operands = [f32], quant.results = [f32], quant.reason = "no range is known for 'three'"}
// CHECK: circle.cast({{.*}} attributes {quant.operands = [f32], quant.results = [unit], quant.reason = "it converts between element types itself"}
