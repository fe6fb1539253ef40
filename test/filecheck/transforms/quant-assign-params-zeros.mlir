// RUN: odc-opt %s --split-input-file -p "quant-assign-params{scheme=uint8}" | filecheck %s

// Zeros have the range of the nearest value of the same unit: of what is added, before that of the product they become;
// zeros that lead to no other keep a scale of their own.
!z = tensor<1x2xf32, #circle.qparams<min = [0.0], max = [0.0]>>
!x = tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.55]>>
!y = tensor<1x2xf32, #circle.qparams<min = [0.0], max = [2.55e-20]>>
func.func @main(%x: !x, %y: !y) -> !y {
  %0 = circle.relu(%x) : (!x) -> !z loc("near")
  %1 = circle.mul(%0, %x) : (!z, !x) -> !z loc("factor")
  %2 = circle.relu(%1) : (!z) -> !z loc("far")
  %3 = circle.add(%2, %y) : (!z, !y) -> !y loc("sum")
  func.return %3 : !y
}
// CHECK: circle.relu({{.*}}quant.results = [!quant.uniform<u8:f32, 0.01:100>]
// CHECK: circle.mul({{.*}}quant.results = [!quant.uniform<u8:f32, 1.0e-22>]
// CHECK: circle.relu({{.*}}quant.results = [!quant.uniform<u8:f32, 1.0e-22>]
// CHECK: circle.add({{.*}}quant.operands = [!quant.uniform<u8:f32, 1.0e-22>, !quant.uniform<u8:f32, 1.0e-22>]

// -----

!z = tensor<1x2xf32, #circle.qparams<min = [0.0], max = [0.0]>>
func.func @main(%x: !z) -> !z {
  %0 = circle.relu(%x) : (!z) -> !z loc("alone")
  func.return %0 : !z
}
// CHECK: circle.relu({{.*}}quant.results = [!quant.uniform<u8:f32, 1.0e-10>]

// -----

// Where there is no other, a product is better than nothing.
!z = tensor<1x2xf32, #circle.qparams<min = [0.0], max = [0.0]>>
!x = tensor<1x2xf32, #circle.qparams<min = [-1.0], max = [1.55]>>
func.func @main(%x: !x) -> !z {
  %0 = circle.mul(%x, %x) : (!x, !x) -> !z loc("product")
  func.return %0 : !z
}
// CHECK: circle.mul({{.*}}quant.results = [!quant.uniform<u8:f32, 0.01:100>]

// -----

// A factor of zeros does not have the unit of what it scales: its product has the unit of the result.
!z = tensor<1x2xf32, #circle.qparams<min = [0.0], max = [0.0]>>
!x = tensor<1x2xf32, #circle.qparams<min = [0.0], max = [2.55e-20]>>
!y = tensor<1x2xf32, #circle.qparams<min = [0.0], max = [2.55e-18]>>
func.func @main(%x: !x, %y: !y) -> !y {
  %zeros = circle.const [0.0, 0.0] : tensor<1x2xf32>
  %0 = circle.mul(%x, %zeros) : (!x, tensor<1x2xf32>) -> !z loc("product")
  %1 = circle.add(%0, %y) : (!z, !y) -> !y loc("sum")
  func.return %1 : !y
}
// CHECK: circle.mul({{.*}}quant.operands = [!quant.uniform<u8:f32, 1.0e-22>, !quant.uniform<u8:f32, 0.39215684>], quant.results = [!quant.uniform<u8:f32, 1.0e-20>]
