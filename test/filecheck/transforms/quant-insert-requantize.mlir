// RUN: odc-opt %s --split-input-file --quant-insert-requantize | filecheck %s

// Reals become codes at the input and reals again at the output, which keeps its name.
func.func @main(%x: tensor<4xf32> loc("x")) -> tensor<4xf32> {
  %0 = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5>>
  %1 = circle.relu(%0) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> loc("y")
  %2 = builtin.unrealized_conversion_cast %1 : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
  func.return %2 : tensor<4xf32>
}
// CHECK: func.func @main(%[[X:.*]]: tensor<4xf32> loc("x"))
// CHECK-NEXT: %[[C:.*]] = circle.quantize(%[[X]]) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> loc("x_quantized")
// CHECK-NEXT: %[[Y:.*]] = circle.relu(%[[C]]) : {{.*}} loc("y_quantized")
// CHECK-NEXT: %[[R:.*]] = circle.dequantize(%[[Y]]) : {{.*}} -> tensor<4xf32> loc("y")
// CHECK-NEXT: func.return %[[R]]

// -----

// Codes become codes of another type by QUANTIZE; reals for an operator inside have a name of their own.
func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5>> loc("x")) -> tensor<4x!quant.uniform<i16:f32, 0.5>> {
  %0 = builtin.unrealized_conversion_cast %x : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4x!quant.uniform<i16:f32, 0.5>>
  %1 = builtin.unrealized_conversion_cast %x : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4x!quant.uniform<i8:f32, 0.25>>
  %2 = builtin.unrealized_conversion_cast %x : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
  "test.op"(%1, %2) : (tensor<4x!quant.uniform<i8:f32, 0.25>>, tensor<4xf32>) -> ()
  func.return %0 : tensor<4x!quant.uniform<i16:f32, 0.5>>
}
// CHECK: circle.quantize(%[[X:.*]]) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i16:f32, 0.5>> loc("x_quantized")
// CHECK-NEXT: circle.quantize(%[[X]]) : {{.*}} -> tensor<4x!quant.uniform<i8:f32, 0.25>> loc("x_quantized_2")
// CHECK-NEXT: circle.dequantize(%[[X]]) : {{.*}} -> tensor<4xf32> loc("x_dequantized")

// -----

// A value that is returned as codes too keeps its name.
func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) -> (tensor<4xf32>, tensor<4x!quant.uniform<i8:f32, 0.5>>) {
  %0 = circle.relu(%x) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> loc("y")
  %1 = builtin.unrealized_conversion_cast %0 : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
  func.return %1, %0 : tensor<4xf32>, tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: circle.relu({{.*}} loc("y")
// CHECK-NEXT: circle.dequantize({{.*}} loc("y_dequantized")

// -----

// Back and forth without a change needs no operator.
func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> {
  %0 = builtin.unrealized_conversion_cast %x : tensor<4x!quant.uniform<i8:f32, 0.5>> to tensor<4xf32>
  %1 = builtin.unrealized_conversion_cast %0 : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: func.func @main(%[[X:.*]]: tensor
// CHECK-NEXT: func.return %[[X]]
