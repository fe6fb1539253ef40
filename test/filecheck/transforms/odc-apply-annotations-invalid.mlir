// RUN: odc-opt %s --print-diagnostics --odc-apply-annotations='host=convv' | filecheck %s
// RUN: odc-opt %s --print-diagnostics --odc-apply-annotations='npu="1"' | filecheck %s --check-prefix NOTHING
// RUN: odc-opt %s --print-diagnostics --odc-apply-annotations='file="none.part"' | filecheck %s --check-prefix FILE

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = circle.relu(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("conv")
  func.return %0 : tensor<4xf32>
}
// CHECK: 'convv' is neither an opcode nor the name of a result of an operator {{.*}}; did you mean 'conv'?
// NOTHING: '1' is neither {{.*}}; use an opcode or the name of a result
// FILE: cannot read the partition file: {{.*}}none.part
