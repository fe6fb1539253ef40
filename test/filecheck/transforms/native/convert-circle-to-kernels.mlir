// RUN: odc-opt %s --split-input-file -p native-partition,convert-circle-to-kernels | filecheck %s

// Signed 8-bit values are stored with an offset of 128 between input and output; every layer is a call. The circle body stays.
func.func @main(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.max_pool_2d(%x) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK-LABEL: func.func @main(
// CHECK: odc.segment @segment_0
// CHECK: circle.max_pool_2d
// CHECK: builtin.module @segment_0 attributes {native.constants = #circle.blob
// CHECK: func.func @segment_0(%[[IN:.*]]: memref<?xi8>, %[[OUT:.*]]: memref<?xi8>, %[[ARENA:.*]]: memref<?xi8>, %[[CONSTANTS:.*]]: memref<?xi8>) -> i32 {
// CHECK: %[[HELD:.*]] = memref.alloc(%{{.*}}) : memref<?xi8>
// CHECK-NEXT: func.call @flip_sign(%[[IN]], %[[HELD]], %{{.*}})
// CHECK: %[[LARGEST:.*]] = memref.alloc(%{{.*}}) : memref<?xi8>
// CHECK: memref.view %[[CONSTANTS]]
// CHECK: func.call @pool_how0_kind1_zero0_clamp1_taps0(%[[HELD]], %[[LARGEST]], {{.*}})
// CHECK-NEXT: func.call @flip_sign(%[[LARGEST]], %[[OUT]], %{{.*}})
// CHECK: func.func private @pool_how0_kind1_zero0_clamp1_taps0({{.*}}) -> () attributes {native.kernel = "pool", native.options = {how = 0 : i64, kind = 1 : i64, {{.*}}}}

// -----

// Float products: padding is a copy, one input channel is a product of whole windows, groups are separate products,
// and a matrix is multiplied as it is.
func.func @main(%x: tensor<1x4x4x2xf32>, %m: tensor<1x4x4x1xf32>, %a: tensor<2x3x4xf32>, %b: tensor<2x4x5xf32>) -> (tensor<1x4x4x3xf32>, tensor<1x4x4x2xf32>, tensor<1x8x8x3xf32>, tensor<1x4x4x1xf32>, tensor<1x4x4x2xf32>, tensor<1x3xf32>, tensor<2x3x5xf32>) {
  %w = circle.const #circle.blob<"0x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<3x3x3x2xf32>
  %g = circle.const #circle.blob<"0x0000000000000000"> : tensor<2x1x1x1xf32>
  %d = circle.const #circle.blob<"0x000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<1x3x3x1xf32>
  %e = circle.const #circle.blob<"0x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<1x3x3x2xf32>
  %k = circle.const #circle.blob<"0x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<3x32xf32>
  %s = circle.const [1, 8, 8, 3] : tensor<4xi32>
  %n = circle.none
  %c = circle.conv_2d(%x, %w, %n) {padding = same, stride = [1, 1]} : (tensor<1x4x4x2xf32>, tensor<3x3x3x2xf32>, none) -> tensor<1x4x4x3xf32>
  %h = circle.conv_2d(%x, %g, %n) {padding = same, stride = [1, 1]} : (tensor<1x4x4x2xf32>, tensor<2x1x1x1xf32>, none) -> tensor<1x4x4x2xf32>
  %t = circle.transpose_conv(%s, %w, %x, %n) {padding = same, stride_h = 2, stride_w = 2} : (tensor<4xi32>, tensor<3x3x3x2xf32>, tensor<1x4x4x2xf32>, none) -> tensor<1x8x8x3xf32>
  %o = circle.depthwise_conv_2d(%m, %d, %n) {padding = same, stride = [1, 1], depth_multiplier = 1} : (tensor<1x4x4x1xf32>, tensor<1x3x3x1xf32>, none) -> tensor<1x4x4x1xf32>
  %p = circle.depthwise_conv_2d(%x, %e, %n) {padding = same, stride = [1, 1], depth_multiplier = 1} : (tensor<1x4x4x2xf32>, tensor<1x3x3x2xf32>, none) -> tensor<1x4x4x2xf32>
  %f = circle.fully_connected(%x, %k, %n) : (tensor<1x4x4x2xf32>, tensor<3x32xf32>, none) -> tensor<1x3xf32>
  %y = circle.batch_matmul(%a, %b) : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  func.return %c, %h, %t, %o, %p, %f, %y : tensor<1x4x4x3xf32>, tensor<1x4x4x2xf32>, tensor<1x8x8x3xf32>, tensor<1x4x4x1xf32>, tensor<1x4x4x2xf32>, tensor<1x3xf32>, tensor<2x3x5xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: func.call @pad_image(
// CHECK: func.call @convolve_reals_rows8_vectors1_clamp1(
// CHECK: func.call @copy_box_size4_single1(
// CHECK: func.call @convolve_reals_rows8_vectors1_clamp1(
// CHECK: func.call @copy_box_size4_single1(
// CHECK: func.call @copy_box_size4_single1(
// CHECK: func.call @convolve_reals_rows8_vectors1_clamp1(
// CHECK: func.call @copy_box_size4_single1(
// CHECK: func.call @convolve_reals_rows8_vectors2_clamp0(
// CHECK: func.call @copy_box_size4_single1(
// CHECK: func.call @add_taps(
// CHECK: func.call @copy_box_size4_single0(
// CHECK: func.call @binary_reals_operation0_clamp1_a0_b3(
// CHECK: func.call @pad_image(
// CHECK: func.call @convolve_reals_rows8_vectors1_clamp1(
// CHECK: func.call @pad_image(
// CHECK: func.call @depthwise_reals_rows8_clamp1(
// CHECK: func.call @convolve_reals_rows1_vectors1_clamp1(
// CHECK: func.call @convolve_reals_rows2_vectors1_clamp0(
// CHECK: func.call @convolve_reals_rows2_vectors1_clamp0(

// -----

// Quantised products: 8-bit and 16-bit values have kernels of their own, and float activations with integer weights
// are quantised first. A computed right matrix is packed at run time.
func.func @main(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>, %z: tensor<1x4x4x2x!quant.uniform<i16:f32, 0.5>>, %r: tensor<1x4x4x2xf32>, %a: tensor<3x4x!quant.uniform<i8:f32, 0.5:3>>, %b: tensor<5x4x!quant.uniform<i8:f32, 0.5:1>>) -> (tensor<1x4x4x3x!quant.uniform<i8:f32, 100.0>>, tensor<1x4x4x2x!quant.uniform<i8:f32, 100.0>>, tensor<1x4x4x3x!quant.uniform<i16:f32, 100.0>>, tensor<1x4x4x2x!quant.uniform<i16:f32, 100.0>>, tensor<1x3xf32>, tensor<3x5x!quant.uniform<i8:f32, 100.0>>) {
  %w = circle.const #circle.blob<"0x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<3x3x3x2x!quant.uniform<i8:f32, 0.5>>
  %e = circle.const #circle.blob<"0x000000000000000000000000000000000000"> : tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5>>
  %k = circle.const #circle.blob<"0x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<3x32x!quant.uniform<i8:f32, 0.5>>
  %n = circle.none
  %c = circle.conv_2d(%x, %w, %n) {padding = same, stride = [1, 1]} : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<3x3x3x2x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x4x4x3x!quant.uniform<i8:f32, 100.0>>
  %d = circle.depthwise_conv_2d(%x, %e, %n) {padding = same, stride = [1, 1], depth_multiplier = 1} : (tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 100.0>>
  %f = circle.conv_2d(%z, %w, %n) {padding = same, stride = [1, 1]} : (tensor<1x4x4x2x!quant.uniform<i16:f32, 0.5>>, tensor<3x3x3x2x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x4x4x3x!quant.uniform<i16:f32, 100.0>>
  %g = circle.depthwise_conv_2d(%z, %e, %n) {padding = same, stride = [1, 1], depth_multiplier = 1} : (tensor<1x4x4x2x!quant.uniform<i16:f32, 0.5>>, tensor<1x3x3x2x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x4x4x2x!quant.uniform<i16:f32, 100.0>>
  %h = circle.fully_connected(%r, %k, %n) : (tensor<1x4x4x2xf32>, tensor<3x32x!quant.uniform<i8:f32, 0.5>>, none) -> tensor<1x3xf32>
  %y = circle.batch_matmul(%a, %b) {adjoint_rhs = true} : (tensor<3x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<5x4x!quant.uniform<i8:f32, 0.5:1>>) -> tensor<3x5x!quant.uniform<i8:f32, 100.0>>
  func.return %c, %d, %f, %g, %h, %y : tensor<1x4x4x3x!quant.uniform<i8:f32, 100.0>>, tensor<1x4x4x2x!quant.uniform<i8:f32, 100.0>>, tensor<1x4x4x3x!quant.uniform<i16:f32, 100.0>>, tensor<1x4x4x2x!quant.uniform<i16:f32, 100.0>>, tensor<1x3xf32>, tensor<3x5x!quant.uniform<i8:f32, 100.0>>
}
// CHECK-LABEL: func.func @main(
// CHECK: func.call @convolve_rows8_vectors1_offset0(
// CHECK: func.call @depthwise_rows8(
// CHECK: func.call @convolve_wide_rows8_vectors1_long1_split0(
// CHECK: func.call @depthwise_rows8_long1(
// CHECK: func.call @quantize_rows_asymmetric0(
// CHECK: func.call @convolve_hybrid_rows1_vectors1_offset0(
// CHECK: func.call @pack_codes_turned1(
// CHECK: func.call @convolve_rows2_vectors1_offset1_matrix1(

// -----

// Element by element: operands broadcast by rows and columns; quantised values have arithmetic or tables.
func.func @main(%a: tensor<2x3xf32>, %b: tensor<3xf32>, %i: tensor<2x3xi32>, %p: tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, %h: tensor<2x3x!quant.uniform<i16:f32, 0.5>>) -> (tensor<2x3xf32>, tensor<2x3x!quant.uniform<i8:f32, 9.0>>, tensor<2x3x!quant.uniform<i16:f32, 9.0>>, tensor<2x3xi32>, tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x3x!quant.uniform<i8:f32, 0.00390625:-128>>, tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %two = circle.const #circle.blob<"0x00000040"> : tensor<f32>
  %c = circle.add(%a, %b) {activation = relu} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %d = circle.pow(%a, %two) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %e = circle.tanh(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %f = circle.add_n(%a, %c, %d) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %g = circle.mul(%p, %p) : (tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x3x!quant.uniform<i8:f32, 9.0>>
  %k = circle.sub(%h, %h) : (tensor<2x3x!quant.uniform<i16:f32, 0.5>>, tensor<2x3x!quant.uniform<i16:f32, 0.5>>) -> tensor<2x3x!quant.uniform<i16:f32, 9.0>>
  %l = circle.maximum(%i, %i) : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  %m = circle.maximum(%p, %p) : (tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>
  %n = circle.logistic(%p) : (tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x3x!quant.uniform<i8:f32, 0.00390625:-128>>
  %o = circle.quantize(%e) : (tensor<2x3xf32>) -> tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>
  %r = circle.dequantize(%p) : (tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x3xf32>
  %s = circle.dequantize(%h) : (tensor<2x3x!quant.uniform<i16:f32, 0.5>>) -> tensor<2x3xf32>
  func.return %f, %g, %k, %l, %m, %n, %o, %r, %s : tensor<2x3xf32>, tensor<2x3x!quant.uniform<i8:f32, 9.0>>, tensor<2x3x!quant.uniform<i16:f32, 9.0>>, tensor<2x3xi32>, tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x3x!quant.uniform<i8:f32, 0.00390625:-128>>, tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x3xf32>, tensor<2x3xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: func.call @binary_reals_operation0_clamp1_a0_b1(
// CHECK: func.call @unary_reals_operation
// CHECK: func.call @unary_reals_operation20(
// CHECK: func.call @binary_reals_operation0_clamp1_a0_b0(
// CHECK: func.call @binary_reals_operation0_clamp1_a0_b0(
// CHECK: func.call @combine_codes_operation2_left0_wide0_halved0_a0_b0(
// CHECK: func.call @combine_codes_operation1_left15_wide1
// CHECK: func.call @map_elements_operation
// CHECK: func.call @look_up_pairs_a0_b0(
// CHECK: func.call @look_up_bits8_result8(
// CHECK: func.call @quantize_reals_wide0(
// CHECK: func.call @look_up_bits8_result32(
// CHECK: func.call @dequantize_wide(

// -----

// Reductions see a tensor as [outer, count, inner]; reduced axes that are no neighbours are brought together.
func.func @main(%x: tensor<2x3x4xf32>, %p: tensor<2x3x4x!quant.uniform<i8:f32, 0.5:3>>) -> (tensor<3xf32>, tensor<2x4xf32>, tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x4xi32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>) {
  %i = circle.const [1] : tensor<1xi32>
  %j = circle.const [0, 2] : tensor<2xi32>
  %k = circle.const [1] : tensor<1xi32>
  %a = circle.sum(%x, %j) {keep_dims = false} : (tensor<2x3x4xf32>, tensor<2xi32>) -> tensor<3xf32>
  %b = circle.mean(%x, %i) {keep_dims = false} : (tensor<2x3x4xf32>, tensor<1xi32>) -> tensor<2x4xf32>
  %c = circle.mean(%p, %i) {keep_dims = false} : (tensor<2x3x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<1xi32>) -> tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>
  %d = circle.arg_max(%x, %k) : (tensor<2x3x4xf32>, tensor<1xi32>) -> tensor<2x4xi32>
  %e = circle.cumsum(%x, %k) {exclusive = false, reverse = true} : (tensor<2x3x4xf32>, tensor<1xi32>) -> tensor<2x3x4xf32>
  %f = circle.softmax(%x) {beta = 1.0} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %g = circle.log_softmax(%x) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %h = circle.l2_normalization(%x) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %gamma = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<4xf32>
  %rms = circle.rms_norm(%x, %gamma) {epsilon = 1.0e-5} : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>
  func.return %a, %b, %c, %d, %e, %f, %g, %h, %rms : tensor<3xf32>, tensor<2x4xf32>, tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<2x4xi32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: func.call @copy_box_size4
// CHECK: func.call @sum_rows(
// CHECK: func.call @pool_how1_kind0_zero0_clamp0_taps3(
// CHECK: func.call @depthwise_rows
// CHECK: func.call @place_of_extreme_largest1_kind0_long0(
// CHECK: func.call @running_sum_kind0_exclusive0_reverse1(
// CHECK: func.call @softmax_reals(
// CHECK: func.call @log_softmax_reals(
// CHECK: func.call @l2_normalize_reals(
// CHECK: func.call @rms_normalize_reals(

// -----

// A view is the buffer itself, any other move a copy by an affine map or a table; images interpolate.
func.func @main(%x: tensor<2x4xf32>, %m: tensor<1x2x2x1xf32>, %i: tensor<2xi32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x2x2xf32>, tensor<1x3x3x1xf32>, tensor<1x1x1x1xf32>) {
  %s = circle.const [4, 2] : tensor<2xi32>
  %p = circle.const [1, 0] : tensor<2xi32>
  %o = circle.const [0, 0, 1, 0] : tensor<2x2xi32>
  %z = circle.const [3, 3] : tensor<2xi32>
  %axis = circle.const [1] : tensor<i32>
  %a = circle.reshape(%x, %s) : (tensor<2x4xf32>, tensor<2xi32>) -> tensor<4x2xf32>
  %b = circle.transpose(%a, %p) : (tensor<4x2xf32>, tensor<2xi32>) -> tensor<2x4xf32>
  %c = circle.concatenation(%x, %b) {axis = 1} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x8xf32>
  %d, %e = circle.split(%axis, %c) {num_splits = 2} : (tensor<i32>, tensor<2x8xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>)
  %f = circle.pad(%d, %o) : (tensor<2x4xf32>, tensor<2x2xi32>) -> tensor<2x5xf32>
  %g = circle.gather(%f, %i) {axis = 1} : (tensor<2x5xf32>, tensor<2xi32>) -> tensor<2x2xf32>
  %h = circle.zeros_like(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %k = circle.matrix_diag(%g) : (tensor<2x2xf32>) -> tensor<2x2x2xf32>
  %l = circle.resize_bilinear(%m, %z) {align_corners = false, half_pixel_centers = true} : (tensor<1x2x2x1xf32>, tensor<2xi32>) -> tensor<1x3x3x1xf32>
  %r = circle.l2_pool_2d(%m) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x2x2x1xf32>) -> tensor<1x1x1x1xf32>
  func.return %e, %h, %k, %l, %r : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x2x2xf32>, tensor<1x3x3x1xf32>, tensor<1x1x1x1xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: %[[X:.*]] = memref.view %in0
// CHECK: func.call @copy_box_size4_single1(%[[X]]
// CHECK: func.call @copy_rows(
// CHECK: func.call @copy_rows(
// CHECK: func.call @copy_box_size4_single1(
// CHECK: func.call @copy_box_size4_single1(
// CHECK: func.call @fill_words(
// CHECK: func.call @copy_box_size4_single1(
// CHECK: func.call @fill_words(
// CHECK: func.call @gather_size4_index4_single1(
// CHECK: func.call @fill_words(
// CHECK: func.call @fill_words(
// CHECK: func.call @copy_
// CHECK: func.call @interpolate_kind0_fixed0(
// CHECK: func.call @pool_inside_how2_kind0_zero0(

// -----

// An LSTM cell: padded rows for the state, the cell, and new contents of the variables, which the segment returns.
func.func @main(%x: tensor<1x2x1x!quant.uniform<i8:f32, 0.5:2>>) -> tensor<1x2x1x!quant.uniform<i8:f32, 0.0078125>> {
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
// CHECK-LABEL: func.func @main(
// CHECK: func.call @copy_rows(
// CHECK: func.call @copy_rows(
// CHECK: func.call @lstm_codes_time_outer0(
// CHECK: func.call @copy_rows(
// CHECK: func.call @copy_rows(
// CHECK: func.call @flip_sign(

// -----

// Rows that replace others at a computed position are copied over a copy of the whole.
func.func @main(%x: tensor<2x8x4xf32>, %rows: tensor<2x1x4xf32>, %at: tensor<3xi32>) -> tensor<2x8x4xf32> {
  %y = circle.dynamic_update_slice(%x, %rows, %at) : (tensor<2x8x4xf32>, tensor<2x1x4xf32>, tensor<3xi32>) -> tensor<2x8x4xf32>
  func.return %y : tensor<2x8x4xf32>
}
// CHECK-LABEL: func.func @main(
// CHECK: func.call @copy(
// CHECK: func.call @update_rows(
