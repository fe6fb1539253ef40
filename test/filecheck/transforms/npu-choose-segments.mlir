// RUN: odc-opt %s --split-input-file -p odc-set-target,npu-mark-supported,npu-choose-segments | filecheck %s
// RUN: odc-opt %s --split-input-file -p 'odc-set-target,npu-mark-supported,npu-choose-segments{min-operators=2}' | filecheck %s --check-prefix TWO
// RUN: odc-opt %s --split-input-file -p 'odc-set-target,npu-mark-supported,npu-choose-segments{max-segments=0}' | filecheck %s --check-prefix NONE

// An operator that the host takes long for is worth a segment. The options become part of the target.
func.func @main(%x: tensor<1x64x64x16x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x64x64x16x!quant.uniform<i8:f32, 0.00390625:-128>> {
  %0 = circle.softmax(%x) {beta = 1.0} : (tensor<1x64x64x16x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x64x64x16x!quant.uniform<i8:f32, 0.00390625:-128>>
  func.return %0 : tensor<1x64x64x16x!quant.uniform<i8:f32, 0.00390625:-128>>
}
// TWO: odc.target = #odc.target<"npu-256", {{.*}}, min_operators = 2>
// NONE: odc.target = #odc.target<"npu-256", {{.*}}, max_segments = 0>
// CHECK: odc.target = #odc.target<"npu-256", memory = flash, prefer = performance, numerics = fixed>
// CHECK: odc.partition = {
// CHECK-NEXT: chosen = {name = "all-supported", estimate_ns = {{[0-9]+}} : i64, segments = 1 : i64, npu_operators = 1 : i64},
// CHECK-NEXT: runner_up = {name = "all-host", estimate_ns
// CHECK: circle.softmax({{.*}}) {{.*}}odc.placed = "npu"}
// TWO: circle.softmax({{.*}}) {{.*}}odc.placed = "host", odc.reason = "segment-size: 1 of at least 2 operators"}
// NONE: circle.softmax({{.*}}) {{.*}}odc.placed = "host", odc.reason = "segment-count: at most 0 segments"}

// -----

// What the user wants on the NPU stays there.
func.func @main(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.relu(%x) attributes {odc.place = "npu"} : (tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x4x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: circle.relu({{.*}}) attributes {odc.place = "npu", odc.placed = "npu"}
// TWO: circle.relu({{.*}}) attributes {odc.place = "npu", odc.placed = "npu"}
// NONE: circle.relu({{.*}}) attributes {odc.place = "npu", odc.placed = "npu"}

// -----

// Nothing for the NPU: nothing to choose.
func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  %0 = circle.relu(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %0 : tensor<1x4xf32>
}
// CHECK: builtin.module attributes
// CHECK-NOT: odc.partition
// CHECK: circle.relu
