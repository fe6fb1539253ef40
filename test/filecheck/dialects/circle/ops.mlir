// RUN: odc-opt %s | filecheck %s
// RUN: odc-opt %s | odc-opt | filecheck %s
// RUN: odc-opt %s --print-op-generic | odc-opt | filecheck %s
// RUN: odc-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

// Height and width stand together; the padding rule is always said, everything else only away from its default.
// CHECK-LABEL: func.func @windows
// GENERIC-LABEL: sym_name = "windows"
func.func @windows(%x: tensor<1x8x8x3xf32>, %w: tensor<4x3x3x3xf32>, %d: tensor<1x3x3x4xf32>, %b: tensor<4xf32>) -> tensor<1x1x1x4xf32> {
  // CHECK: [[C:%.+]] = circle.conv_2d(%x, %w, %b) {padding = same, stride = [2, 1], activation = relu6, dilation = [1, 2]} : (tensor<1x8x8x3xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<1x4x8x4xf32>
  // GENERIC: "circle.conv_2d"(%x, %w, %b) <{
  // GENERIC-SAME: stride_h = 2 : i32
  // GENERIC-SAME: fused_activation_function = "relu6"
  %c = circle.conv_2d(%x, %w, %b) {padding = same, stride = [2, 1], activation = relu6, dilation = [1, 2]} : (tensor<1x8x8x3xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<1x4x8x4xf32>
  // CHECK: [[D:%.+]] = circle.depthwise_conv_2d([[C]], %d, %b) {padding = valid, stride = [1, 1], depth_multiplier = 1} :
  %dw = circle.depthwise_conv_2d(%c, %d, %b) {padding = valid, stride = [1, 1], depth_multiplier = 1} : (tensor<1x4x8x4xf32>, tensor<1x3x3x4xf32>, tensor<4xf32>) -> tensor<1x2x6x4xf32>
  // CHECK: [[P:%.+]] = circle.max_pool_2d([[D]]) {padding = valid, stride = [2, 2], filter = [2, 3]} :
  %p = circle.max_pool_2d(%dw) {padding = valid, filter = [2, 3], stride = [2, 2]} : (tensor<1x2x6x4xf32>) -> tensor<1x1x2x4xf32>
  // CHECK: circle.average_pool_2d([[P]]) {padding = same, stride = [1, 2], filter = [1, 2]} :
  %a = circle.average_pool_2d(%p) {stride = [1, 2], filter = [1, 2]} : (tensor<1x1x2x4xf32>) -> tensor<1x1x1x4xf32>
  func.return %a : tensor<1x1x1x4xf32>
}

// A left-out operand in the middle is a value, at the end it is not there.
// CHECK-LABEL: func.func @left_out
func.func @left_out(%x: tensor<2x8xf32>, %w: tensor<4x8xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  // CHECK: [[NONE:%.+]] = circle.none
  %none = circle.none
  // CHECK: circle.fully_connected(%x, %w, [[NONE]]) : (tensor<2x8xf32>, tensor<4x8xf32>, none) -> tensor<2x4xf32>
  %a = circle.fully_connected(%x, %w, %none) : (tensor<2x8xf32>, tensor<4x8xf32>, none) -> tensor<2x4xf32>
  // CHECK: circle.fully_connected(%x, %w) {keep_num_dims = true} : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
  %b = circle.fully_connected(%x, %w) {keep_num_dims = true} : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<2x4xf32>
  func.return %a, %b : tensor<2x4xf32>, tensor<2x4xf32>
}

// Options of every kind; the default of one that is given is left out again.
// CHECK-LABEL: func.func @options
func.func @options(%x: tensor<2x3xf32>, %s: tensor<1xi32>) {
  // CHECK: circle.softmax(%x) {beta = 0.1} :
  %0 = circle.softmax(%x) {beta = 0.1} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: circle.reshape(%x, %s) {new_shape = [6]} :
  %1 = circle.reshape(%x, %s) {new_shape = [6]} : (tensor<2x3xf32>, tensor<1xi32>) -> tensor<6xf32>
  // CHECK: circle.add(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %2 = circle.add(%x, %x) {activation = none, pot_scale_int16 = true} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: circle.concatenation(%x, %x) {axis = -1, version = 2} :
  %3 = circle.concatenation(%x, %x) {axis = -1, version = 2} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  // CHECK: circle.neg(%x) attributes {odc.placed = "host", odc.reason = "no form"} :
  %4 = circle.neg(%x) attributes {odc.placed = "host", odc.reason = "no form"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return
}

// An operator that only the schema has can be read and printed; a custom one keeps its code and bytes.
// CHECK-LABEL: func.func @others
func.func @others(%x: tensor<2x3xf32>) {
  // CHECK: circle.delegate(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<*xf32>
  %0 = "circle.delegate"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<*xf32>
  // CHECK: circle.custom(%x) {custom_code = "My\22Op", custom_options = #circle.blob<"0x01ff">, mutating_variable_inputs = [true], intermediates = [#circle.tensor<"mid", tensor<4xi8>>, none]} :
  %1 = circle.custom(%x) {custom_code = "My\22Op", custom_options = #circle.blob<"0x01ff">, mutating_variable_inputs = [true], intermediates = [#circle.tensor<"mid", tensor<4xi8>>, none]} : (tensor<2x3xf32>) -> tensor<?x3xf32>
  // CHECK: circle.variable : tensor<4xf32>
  %2 = circle.variable : tensor<4xf32>
  // CHECK: circle.undefined : tensor<4xf32>
  %3 = circle.undefined : tensor<4xf32>
  func.return
}

// Control flow refers to functions, not to numbers.
// CHECK-LABEL: func.func @control
func.func @control(%c: tensor<i1>, %x: tensor<2x3xf32>) {
  // CHECK: circle.if(%c, %x) {then_subgraph_index = @branch, else_subgraph_index = @branch} :
  %0 = circle.if(%c, %x) {then_subgraph_index = @branch, else_subgraph_index = @branch} : (tensor<i1>, tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return
}

func.func @branch(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  func.return %x : tensor<2x3xf32>
}
