// RUN: odc-opt %s --split-input-file --print-diagnostics --quant-insert-requantize | filecheck %s

func.func @main(%x: tensor<4xi32> loc("x")) -> tensor<4xf32> {
  %0 = builtin.unrealized_conversion_cast %x : tensor<4xi32> to tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
// CHECK: no operator converts tensor<4xi32> into tensor<4xf32>; one side must be quantised, the other quantised or f32 (pass quant-insert-requantize, op QUANTIZE, tensor 'x')

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0, %1 = builtin.unrealized_conversion_cast %x, %x : tensor<4xf32>, tensor<4xf32> to tensor<4xf32>, tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
// CHECK: a cast of several values does not convert between float and quantised (pass quant-insert-requantize, op builtin.unrealized_conversion_cast)
