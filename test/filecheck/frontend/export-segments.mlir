// RUN: odc-opt %s -t circle | odc-opt | filecheck %s

// A file has the operators of a segment in its place; its program is not a part of the model.
// CHECK-LABEL: func.func @main
// CHECK: [[A:%.+]] = circle.relu(%x) : {{.*}} loc("a")
// CHECK-NEXT: [[B:%.+]] = circle.relu6([[A]]) : {{.*}} loc("b")
// CHECK-NEXT: [[C:%.+]] = circle.relu([[B]]) : {{.*}} loc("c")
// CHECK-NEXT: func.return [[C]], [[A]] :
func.func @main(%x: tensor<8xf32> loc("x")) -> (tensor<8xf32>, tensor<8xf32>) {
  %r, %s = odc.segment @segment_0(%x) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) circle {
  ^bb0(%0: tensor<8xf32>):
    %a = circle.relu(%0) : (tensor<8xf32>) -> tensor<8xf32> loc("a")
    %b = circle.relu6(%a) : (tensor<8xf32>) -> tensor<8xf32> loc("b")
    odc.yield %b, %a : tensor<8xf32>, tensor<8xf32>
  }
  %c = circle.relu(%r) : (tensor<8xf32>) -> tensor<8xf32> loc("c")
  func.return %c, %s : tensor<8xf32>, tensor<8xf32>
}
npu.program @segment_0(%0: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %z = circle.tanh(%0) : (tensor<8xf32>) -> tensor<8xf32> loc("z")
  odc.yield %z, %z : tensor<8xf32>, tensor<8xf32>
}
