// RUN: odc-opt %s --split-input-file -p "odc-set-target,npu-mark-supported,npu-form-groups,npu-choose-segments{strategy=supported},npu-form-segments,npu-outline-segments,convert-circle-to-npu" | filecheck %s

// A cell of one unit: weights of all gates side by side, the input's zero point in the biases, scales to Q3; what the
// variables hold in the end leaves the segment.
func.func @lstm(%x: tensor<1x2x1x!quant.uniform<i8:f32, 0.5:2>>) -> tensor<1x2x1x!quant.uniform<i8:f32, 0.0078125>> {
  %i = circle.const [1] : tensor<1x1x!quant.uniform<i8:f32, 0.25>>
  %f = circle.const [2] : tensor<1x1x!quant.uniform<i8:f32, 0.25>>
  %c = circle.const [3] : tensor<1x1x!quant.uniform<i8:f32, 0.25>>
  %o = circle.const [4] : tensor<1x1x!quant.uniform<i8:f32, 0.25>>
  %b = circle.const [10] : tensor<1x!quant.uniform<i32:f32, 0.125>>
  %n = circle.none
  %h = circle.variable : tensor<1x1x!quant.uniform<i8:f32, 0.0078125>>
  %s = circle.variable : tensor<1x1x!quant.uniform<i16:f32, 0.00048828125>>
  %y = circle.unidirectional_sequence_lstm(%x, %i, %f, %c, %o, %i, %f, %c, %o, %n, %n, %n, %b, %b, %b, %b, %n, %n, %h, %s, %n, %n, %n, %n) {activation = tanh, cell_clip = 8.0} : (tensor<1x2x1x!quant.uniform<i8:f32, 0.5:2>>, tensor<1x1x!quant.uniform<i8:f32, 0.25>>, tensor<1x1x!quant.uniform<i8:f32, 0.25>>, tensor<1x1x!quant.uniform<i8:f32, 0.25>>, tensor<1x1x!quant.uniform<i8:f32, 0.25>>, tensor<1x1x!quant.uniform<i8:f32, 0.25>>, tensor<1x1x!quant.uniform<i8:f32, 0.25>>, tensor<1x1x!quant.uniform<i8:f32, 0.25>>, tensor<1x1x!quant.uniform<i8:f32, 0.25>>, none, none, none, tensor<1x!quant.uniform<i32:f32, 0.125>>, tensor<1x!quant.uniform<i32:f32, 0.125>>, tensor<1x!quant.uniform<i32:f32, 0.125>>, tensor<1x!quant.uniform<i32:f32, 0.125>>, none, none, tensor<1x1x!quant.uniform<i8:f32, 0.0078125>>, tensor<1x1x!quant.uniform<i16:f32, 0.00048828125>>, none, none, none, none) -> tensor<1x2x1x!quant.uniform<i8:f32, 0.0078125>>
  func.return %y : tensor<1x2x1x!quant.uniform<i8:f32, 0.0078125>>
}
// CHECK-LABEL: func.func @lstm(
// CHECK: %[[H:.*]] = circle.variable
// CHECK-NEXT: %[[S:.*]] = circle.variable
// CHECK-NEXT: %[[Y:.*]], %{{.*}}, %{{.*}} = odc.segment @segment_0(%{{.*}}, %[[H]], %[[S]])
// CHECK-NEXT: ^{{.*}}(%{{.*}}: {{.*}}, %[[AH:.*]]: {{.*}}, %[[AS:.*]]: {{.*}}):
// CHECK: odc.yield %{{.*}}, %[[AH]], %[[AS]]
// CHECK: func.return %[[Y]]
// CHECK: npu.program @segment_0(%[[PX:.*]]: {{.*}}, %[[PH:.*]]: {{.*}}, %[[PS:.*]]: {{.*}}) ->
// CHECK-NEXT: %[[O:.*]], %[[LH:.*]], %[[LS:.*]] = npu.lstm %[[PX]], %[[PH]], %[[PS]] inputs <"0x01020304"> bias <8, 6, 4, 2> scales [#npu.scale<1073741824, 10>, {{.*}}] recurrent <"0x01020304"> scales [#npu.scale<1073741824, 4>, {{.*}}] cell_exponent -11 clip 16384 scale <1073741824, -22> :
// CHECK-NEXT: odc.yield %[[O]], %[[LH]], %[[LS]]
