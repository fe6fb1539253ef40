// RUN: odc-opt %s --split-input-file --print-diagnostics -p quant-propagate-params | filecheck %s

builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> attributes {quant.arguments = [f32, f32]} {
    func.return %x : tensor<1x2xf32>
  }
}
// CHECK: quant.arguments is [f32, f32]; it must list 1 element types (pass quant-propagate-params, op func.func)

// -----

builtin.module attributes {quant.scheme = "int8"} {
  func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> attributes {quant.arguments = [f32]} {
    %0 = circle.neg(%x) attributes {quant.operands = ["int8"], quant.results = [f32]} : (tensor<1x2xf32>) -> tensor<1x2xf32>
    func.return %0 : tensor<1x2xf32>
  }
}
// CHECK: quant.operands contains "int8"; an entry is f32, a quantised type, a plain one or unit

// -----

builtin.module attributes {quant.scheme = "int9"} {
  func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> attributes {quant.arguments = [f32]} {
    func.return %x : tensor<1x2xf32>
  }
}
// CHECK: unknown quantisation scheme 'int9'
