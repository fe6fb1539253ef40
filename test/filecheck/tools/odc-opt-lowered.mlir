// RUN: odc-opt %s --stage partition -o %t.partition.mlir
// RUN: odc-opt %s --stage npu -o %t.npu.mlir
// RUN: odc-opt %s --stage native-alloc -o %t.native.mlir
// RUN: not odc-opt %t.partition.mlir --stage npu 2>&1 | filecheck %s --check-prefix=PARTITION
// RUN: not odc-opt %t.npu.mlir --stage npu 2>&1 | filecheck %s --check-prefix=NPU
// RUN: not odc-opt %t.npu.mlir --npu-choose-tiles --stage npu 2>&1 | filecheck %s --check-prefix=LATER
// RUN: not odc-opt %t.native.mlir --stage native-loops 2>&1 | filecheck %s --check-prefix=NATIVE
// RUN: odc-opt %t.npu.mlir -p npu-sched,npu-alloc,package | filecheck %s --check-prefix=ON

// Stages start from models: IR that some of them have lowered goes on with those that are left.
// PARTITION: error: this IR is lowered to stage partition already: it holds odc.segment @segment_0; start from the model, or from IR of stage quant or before; to continue, use odc-opt -p npu,npu-sched,npu-alloc
// NPU: error: this IR is lowered to stage npu already: it holds odc.segment @segment_0; start from the model, or from IR of stage quant or before; to continue, use odc-opt -p npu-sched,npu-alloc
// LATER: error: illegal at the end of stage circle: odc.segment is of another level
// NATIVE: error: this IR is lowered to stage native-alloc already: it holds odc.segment @segment_0; start from the model, or from IR of stage quant or before; to continue, use odc-opt -p native-divide,native-loops,native-llvm
// ON: npu.isa.halt
func.func @main(%x: tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>) -> tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>> {
  %w = circle.const [1, 2, 3, 4, 5, 6, 7, 8, 9] : tensor<1x3x3x1x!quant.uniform<i8:f32, 0.25>>
  %n = circle.none
  %1 = circle.conv_2d(%x, %w, %n) {padding = same, stride = [2, 2], activation = relu} : (tensor<1x4x4x1x!quant.uniform<i8:f32, 0.5:7>>, tensor<1x3x3x1x!quant.uniform<i8:f32, 0.25>>, none) -> tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>
}
