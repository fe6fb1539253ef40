// RUN: odc-opt %s --split-input-file --odc-apply-annotations='host="a/b:0",TANH npu=t' | filecheck %s

// Names count more than opcodes, and npu more than host; the model's own attributes stay where nothing else is said.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = circle.relu(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("a/b:0")
  %1 = circle.tanh(%0) : (tensor<4xf32>) -> tensor<4xf32> loc("s")
  %2 = circle.tanh(%1) : (tensor<4xf32>) -> tensor<4xf32> loc("t")
  %3 = circle.relu(%2) attributes {odc.place = "host"} : (tensor<4xf32>) -> tensor<4xf32> loc("u")
  %4 = circle.relu(%3) : (tensor<4xf32>) -> tensor<4xf32> loc("v")
  func.return %4 : tensor<4xf32>
}
// CHECK: circle.relu({{.*}}) attributes {odc.place = "host"}
// CHECK-NEXT: circle.tanh({{.*}}) attributes {odc.place = "host"}
// CHECK-NEXT: circle.tanh({{.*}}) attributes {odc.place = "npu"}
// CHECK-NEXT: circle.relu({{.*}}) attributes {odc.place = "host"}
// CHECK-NEXT: circle.relu({{.*}}) : (
