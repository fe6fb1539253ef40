// RUN: odc-opt %s -p 'convert-circle-to-quant{inputs="x=uint8" outputs="int16"}' | filecheck %s
// RUN: odc-opt %s -p 'convert-circle-to-quant{io=quantized inputs="x=float"}' | filecheck %s --check-prefix MIXED
// RUN: not odc-opt %s -p 'convert-circle-to-quant{inputs="a=int8"}' 2>&1 | filecheck %s --check-prefix NAME
// RUN: not odc-opt %s -p 'convert-circle-to-quant{outputs="n=int8"}' 2>&1 | filecheck %s --check-prefix WHOLE
// RUN: not odc-opt %s -p 'convert-circle-to-quant{outputs="r=int8"}' 2>&1 | filecheck %s --check-prefix RANGE

// An input of uint8 has the codes of int8, moved by 128; results of int16 stand for the range that those of int8 have.
// One that is real inside becomes codes where its range is known.
func.func @main(%x: tensor<4xf32> loc("x"), %n: tensor<4xi32> loc("n"), %r: tensor<4xf32, #circle.qparams<min = [-1.0], max = [1.0]>> loc("s"))
    -> (tensor<4xf32>, tensor<4xi32>, tensor<4xf32, #circle.qparams<min = [-1.0], max = [1.0]>>)
    attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5:3>, unit, f32]} {
  %0 = circle.relu(%x) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5:3>], quant.results = [!quant.uniform<i8:f32, 0.5:-128>]
  } : (tensor<4xf32>) -> tensor<4xf32> loc("y")
  func.return %0, %n, %r : tensor<4xf32>, tensor<4xi32>, tensor<4xf32, #circle.qparams<min = [-1.0], max = [1.0]>>
}
// CHECK: func.func @main(%[[X:[a-z]*]]: tensor<4x!quant.uniform<u8:f32, 0.5:131>> {{.*}}, %n: tensor<4xi32> {{.*}}, %r: tensor<4xf32> loc("s"))
// CHECK-SAME: -> (tensor<4x!quant.uniform<i16:f32, 0.00389111>>, tensor<4xi32>, tensor<4x!quant.uniform<i16:f32, 3.051851e-05>>)
// CHECK: %[[IN:.*]] = builtin.unrealized_conversion_cast %[[X]] : {{.*}} to tensor<4x!quant.uniform<i8:f32, 0.5:3>>
// CHECK: %[[Y:.*]] = circle.relu(%[[IN]])
// CHECK: builtin.unrealized_conversion_cast %[[Y]] : {{.*}} to tensor<4x!quant.uniform<i16:f32, 0.00389111>>
// MIXED: func.func @main(%{{[a-z]*}}: tensor<4xf32> {{.*}}, %{{.*}}: tensor<4xi32> {{.*}}, %r: tensor<4xf32> loc("s")) -> (tensor<4x!quant.uniform<i8:f32, 0.5:-128>>, tensor<4xi32>, tensor<4xf32>)
// NAME: error: the model has no input 'a'{{.*}}; it has 'x', 'n', 's'
// WHOLE: error: output 'n' is int32, not float, and cannot be changed{{.*}}; omit its type
// RANGE: error: the model has no output 'r'{{.*}}; it has 'y', 'n', 's'
