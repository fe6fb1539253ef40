// RUN: odc-opt %s | filecheck %s
// RUN: odc-opt %s | odc-opt | filecheck %s
// RUN: odc-opt %s --print-op-generic | xdsl-opt --allow-unregistered-dialect | filecheck %s --check-prefix=STOCK

// A long type is named once at the top.
// CHECK: !per_axis0 = !quant.uniform<i8:f32:0, {0.5, 0.25:1, 0.125:-128, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8}>
// CHECK-LABEL: func.func @types
func.func @types(
  // CHECK-SAME: %a: tensor<2x!quant.uniform<i8:f32, 0.5:-3>>
  // STOCK: tensor<2x!quant.uniform<i8:f32, 0.5:-3>>
  %a: tensor<2x!quant.uniform<i8:f32, 0.5:-3>>,
  // Zero point 0 is left out, scales are the shortest text of a float32.
  // CHECK-SAME: %b: tensor<2x!quant.uniform<u8:f32, 0.1>>
  %b: tensor<2x!quant.uniform<u8:f32, 0.100000001490116:0>>,
  // CHECK-SAME: %c: tensor<2x!quant.uniform<i8<-127:127>:f32, 1.0e-05>>
  %c: tensor<2x!quant.uniform<i8<-127:127>:f32, 1.0e-05>>,
  // The whole range need not be said.
  // CHECK-SAME: %d: tensor<2x!quant.uniform<i4:f32, 2.0>>
  %d: tensor<2x!quant.uniform<i4<-8:7>:f32, 2.0>>,
  // CHECK-SAME: %e: tensor<1x2x!quant.uniform<i32:f32:1, {0.5, 0.25:7}>>
  %e: tensor<1x2x!quant.uniform<i32:f32:1, {0.5:0, 0.25:7}>>,
  // One scale per axis is not one scale.
  // CHECK-SAME: %f: tensor<1x!quant.uniform<u16:f32:0, {0.5}>>
  %f: tensor<1x!quant.uniform<u16:f32:0, {0.5}>>,
  // CHECK-SAME: %g: tensor<10x!per_axis0>
  %g: tensor<10x!quant.uniform<i8:f32:0, {0.5, 0.25:1, 0.125:-128, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8}>>) {
  func.return
}
