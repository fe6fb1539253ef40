// RUN: odc-opt %s --split-input-file --odc-fix-batch='batch=2' | filecheck %s

// An open first dimension gets its size, in everything that depends on it; the declared types stay beside.
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = circle.relu(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return %0 : tensor<?x4xf32>
}
// CHECK: func.func @main(%[[X:.*]]: tensor<2x4xf32>) -> tensor<2x4xf32> attributes {odc.declared_inputs = [tensor<?x4xf32>]}
// CHECK-NEXT: circle.relu(%[[X]]) attributes {odc.declared = [tensor<?x4xf32>]} : (tensor<2x4xf32>) -> tensor<2x4xf32>

// -----

// Other dimensions stay open, and a model without an open batch stays as it is.
func.func @main(%x: tensor<1x?xf32>) -> tensor<1x?xf32> {
  %0 = circle.relu(%x) : (tensor<1x?xf32>) -> tensor<1x?xf32>
  func.return %0 : tensor<1x?xf32>
}
// CHECK: func.func @main(%{{.*}}: tensor<1x?xf32>) -> tensor<1x?xf32> {
// CHECK-NEXT: circle.relu(%{{.*}}) : (tensor<1x?xf32>) -> tensor<1x?xf32>

// -----

// An operator that computes shapes keeps its result, which follows now, beside it; the reshape's type is complete.
func.func @main(%x: tensor<?x2x3xf32>) -> tensor<*xf32> {
  %0 = circle.shape(%x) {out_type = int32} : (tensor<?x2x3xf32>) -> tensor<3xi32>
  %1 = circle.reshape(%x, %0) : (tensor<?x2x3xf32>, tensor<3xi32>) -> tensor<*xf32>
  func.return %1 : tensor<*xf32>
}
// CHECK: circle.shape(%{{.*}}) {out_type = int32} attributes {odc.known = #circle.blob<"0x020000000200000003000000">}
// CHECK-NEXT: circle.reshape{{.*}} attributes {odc.declared = [tensor<*xf32>]} : {{.*}} -> tensor<2x2x3xf32>
