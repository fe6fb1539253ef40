// RUN: odc-opt %s --split-input-file -p canonicalize | filecheck %s
// RUN: xdsl-opt %s --split-input-file -p canonicalize | filecheck %s

// RESHAPE to the shape that the value has.
// CHECK-LABEL: @same_shape
// CHECK: "test.op"(%x)
func.func @same_shape(%x: tensor<1x4xf32>, %s: tensor<2xi32>) {
  %0 = circle.reshape(%x, %s) : (tensor<1x4xf32>, tensor<2xi32>) -> tensor<1x4xf32>
  "test.op"(%0) : (tensor<1x4xf32>) -> ()
  func.return
}

// -----

// Two TRANSPOSEs with permutations that cancel.
// CHECK-LABEL: @transposes
// CHECK: "test.op"(%x)
func.func @transposes(%x: tensor<1x2x3xf32>) {
  %p = circle.const [0, 2, 1] : tensor<3xi32>
  %0 = circle.transpose(%x, %p) : (tensor<1x2x3xf32>, tensor<3xi32>) -> tensor<1x3x2xf32>
  %1 = circle.transpose(%0, %p) : (tensor<1x3x2xf32>, tensor<3xi32>) -> tensor<1x2x3xf32>
  "test.op"(%1) : (tensor<1x2x3xf32>) -> ()
  func.return
}

// -----

// RESHAPE of a view reads the operand of the view.
// CHECK-LABEL: @views
// CHECK-NOT: circle.squeeze
// CHECK: circle.reshape(%x, %{{.*}})
func.func @views(%x: tensor<1x2x3xf32>, %s: tensor<1xi32>) {
  %0 = circle.squeeze(%x) {squeeze_dims = [0]} : (tensor<1x2x3xf32>) -> tensor<2x3xf32>
  %1 = circle.reshape(%0, %s) : (tensor<2x3xf32>, tensor<1xi32>) -> tensor<6xf32>
  "test.op"(%1) : (tensor<6xf32>) -> ()
  func.return
}

// -----

// A TRANSPOSE that moves an extent of 1 becomes a RESHAPE.
// CHECK-LABEL: @extent_of_one
// CHECK: circle.reshape(%x
func.func @extent_of_one(%x: tensor<1x2x3xf32>) {
  %p = circle.const [1, 0, 2] : tensor<3xi32>
  %0 = circle.transpose(%x, %p) : (tensor<1x2x3xf32>, tensor<3xi32>) -> tensor<2x1x3xf32>
  "test.op"(%0) : (tensor<2x1x3xf32>) -> ()
  func.return
}

// -----

// Another order of elements stays.
// CHECK-LABEL: @stays
// CHECK: circle.transpose
func.func @stays(%x: tensor<2x3xf32>) {
  %p = circle.const [1, 0] : tensor<2xi32>
  %0 = circle.transpose(%x, %p) : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<3x2xf32>
  "test.op"(%0) : (tensor<3x2xf32>) -> ()
  func.return
}
