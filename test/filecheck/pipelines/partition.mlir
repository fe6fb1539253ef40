// RUN: odc-opt %s --stage partition | filecheck %s

// A float model around a quantised middle: shapes are inferred, what is constant folded, the middle becomes a segment.
func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %s = circle.const [0.75] : tensor<1xf32>
  %0 = circle.add(%s, %s) : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
  %1 = circle.mul(%x, %0) : (tensor<?x8xf32>, tensor<1xf32>) -> tensor<?x8xf32>
  %2 = circle.quantize(%1) : (tensor<?x8xf32>) -> tensor<?x8x!quant.uniform<i8:f32, 0.5>>
  %3 = circle.relu(%2) : (tensor<?x8x!quant.uniform<i8:f32, 0.5>>) -> tensor<*x!quant.uniform<i8:f32, 0.5>>
  %4 = circle.tanh(%3) : (tensor<*x!quant.uniform<i8:f32, 0.5>>) -> tensor<*x!quant.uniform<i8:f32, 0.0078125>>
  %5 = circle.dequantize(%4) : (tensor<*x!quant.uniform<i8:f32, 0.0078125>>) -> tensor<?x8xf32>
  func.return %5 : tensor<?x8xf32>
}
// CHECK: builtin.module attributes {
// CHECK-NEXT: odc.target = #odc.target<"npu-256", memory = flash, prefer = performance, numerics = fixed>,
// CHECK-NEXT: odc.partition = {
// CHECK-NEXT: chosen = {name = "all-supported"
// CHECK: func.func @main(%[[X:.*]]: tensor<1x8xf32>) -> tensor<1x8xf32> attributes {odc.declared_inputs = [tensor<?x8xf32>]} {
// CHECK-NEXT: %[[SUM:.*]] = circle.const [1.5] : tensor<1xf32>
// CHECK-NEXT: circle.mul(%[[X]], %[[SUM]]) attributes {odc.declared = [tensor<?x8xf32>], odc.placed = "host", odc.reason = "element-type: '' is float32"}
// CHECK-NEXT: circle.quantize({{.*}}) attributes {{{.*}}odc.placed = "host"
// CHECK-NEXT: odc.segment @segment_0
// CHECK-NEXT: ^{{.*}}({{.*}}):
// CHECK-NEXT: circle.relu
// CHECK-NEXT: circle.tanh
// CHECK-NEXT: odc.yield
// CHECK-NEXT: }
// CHECK-NEXT: circle.dequantize({{.*}}) attributes {{{.*}}odc.placed = "host"
// CHECK-NEXT: func.return
