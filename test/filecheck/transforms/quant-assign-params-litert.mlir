// RUN: odc-opt %s -p "quant-assign-params{scheme=uint8 reader=litert}" | filecheck %s
// RUN: odc-opt %s -p "quant-assign-params{scheme=uint8}" | filecheck %s --check-prefix=ANY

// LiteRT has no RSQRT on codes of uint8. What keeps its operand from 0 stays real with it: no code is that of infinity.
!x = tensor<1x2xf32, #circle.qparams<min = [0.0], max = [2.55]>>
func.func @main(%x: !x) -> !x {
  %epsilon = circle.const [1.0e-06] : tensor<1xf32>
  %0 = circle.add(%x, %epsilon) : (!x, tensor<1xf32>) -> !x
  %1 = circle.rsqrt(%0) : (!x) -> !x
  %2 = circle.add(%1, %epsilon) : (!x, tensor<1xf32>) -> !x
  func.return %2 : !x
}
// CHECK: circle.add({{.*}}quant.operands = [f32, f32], quant.results = [f32], quant.reason = "RSQRT of it stays float, and is infinite at 0"
// CHECK: circle.rsqrt({{.*}}quant.operands = [f32], quant.results = [f32], quant.reason = "LiteRT has no kernel for codes of this type"
// CHECK: circle.add({{.*}}quant.results = [!quant.uniform<u8:f32, 0.01>]

// ANY: circle.add({{.*}}quant.results = [!quant.uniform<u8:f32, 0.01>]
// ANY: circle.rsqrt({{.*}}quant.results = [!quant.uniform<u8:f32, 0.01>]
