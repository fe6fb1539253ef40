// RUN: odc-opt %s -t circle | odc-opt | filecheck %s
// RUN: odc-opt %s -t circle | odc-opt -t circle | odc-opt | filecheck %s

// What a file says beyond its graph survives the way through a Circle file: signatures, metadata, names with any
// characters, functions that control flow refers to, and custom operators.
// CHECK: builtin.module attributes {
// CHECK-NEXT: circle.version = 2 : i32,
// CHECK-NEXT: circle.description = "two \22words\22",
// CHECK-NEXT: circle.signatures = [{key = "serve", subgraph = @main, inputs = {{\[\[}}"image", 1 : i32], ["flag", 0 : i32]], outputs = {{\[\[}}"y", 0 : i32]]}]
// CHECK-NEXT: circle.metadata = [{name = "min_runtime_version", data = #circle.blob<"0x312e3134">}]
builtin.module attributes {
  circle.version = 2 : i32, circle.description = "two \22words\22",
  circle.signatures = [{key = "serve", subgraph = @main, inputs = [["image", 1 : i32], ["flag", 0 : i32]], outputs = [["y", 0 : i32]]}],
  circle.metadata = [{name = "min_runtime_version", data = #circle.blob<"0x312e3134">}]} {
  // CHECK-LABEL: func.func @main
  // CHECK-SAME: (%serving_flag: tensor<i1> loc("serving/flag:0"), %bild_gr_e_x: tensor<2x3xf32> loc("bild/größe \22x\22"))
  // CHECK-SAME: attributes {circle.unnamed}
  func.func @main(%flag: tensor<i1> loc("serving/flag:0"), %image: tensor<2x3xf32> loc("bild/größe \22x\22")) -> tensor<2x3xf32> attributes {circle.unnamed} {
    // CHECK: circle.if(%serving_flag, %bild_gr_e_x) {then_subgraph_index = @then, else_subgraph_index = @"main\22s else"} : {{.*}} loc("chosen")
    %y = circle.if(%flag, %image) {then_subgraph_index = @then, else_subgraph_index = @"main\22s else"} : (tensor<i1>, tensor<2x3xf32>) -> tensor<2x3xf32> loc("chosen")
    // CHECK: [[STATE:%.+]] = circle.variable : tensor<4x!quant.uniform<i8:f32, 0.5:3>> loc("state")
    %s = circle.variable : tensor<4x!quant.uniform<i8:f32, 0.5:3>> loc("state")
    // CHECK: [[NONE:%.+]] = circle.none
    %none = circle.none
    // CHECK: circle.custom([[STATE]], [[NONE]]) {version = 3, custom_code = "Mine", custom_options = #circle.blob<"0x0102">, mutating_variable_inputs = [true, false], intermediates = [none, #circle.tensor<"mid", tensor<1x!quant.uniform<i16:f32, 0.25>>>]} :
    // CHECK-SAME: -> (tensor<*xf32>, tensor<?x2xi64>) loc(fused["a", "b"])
    %a, %b = circle.custom(%s, %none) {version = 3, custom_code = "Mine", custom_options = #circle.blob<"0x0102">, mutating_variable_inputs = [true, false], intermediates = [none, #circle.tensor<"mid", tensor<1x!quant.uniform<i16:f32, 0.25>>>]} : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>, none) -> (tensor<*xf32>, tensor<?x2xi64>) loc(fused["a", "b"])
    func.return %y : tensor<2x3xf32>
  }
  // CHECK-LABEL: func.func @then
  func.func @then(%x: tensor<2x3xf32> loc("x")) -> tensor<2x3xf32> {
    func.return %x : tensor<2x3xf32>
  }
  // CHECK-LABEL: func.func @"main\22s else"
  func.func @"main\22s else"(%x: tensor<2x3xf32> loc("x")) -> tensor<2x3xf32> {
    // CHECK: circle.const [1.0] : tensor<1xf32> loc("one")
    %one = circle.const [1.0] : tensor<1xf32> loc("one")
    // CHECK: circle.add({{.*}}) {activation = tanh} : {{.*}} loc("sum")
    %0 = circle.add(%x, %one) {activation = tanh} : (tensor<2x3xf32>, tensor<1xf32>) -> tensor<2x3xf32> loc("sum")
    func.return %0 : tensor<2x3xf32>
  }
}
