// RUN: odc-opt %s | odc-opt | filecheck %s
// RUN: odc-opt %s --print-op-generic | odc-opt | filecheck %s

// CHECK: npu.program @one(%[[X:.*]]: tensor<4xi8> loc("x")) -> tensor<4xi8> attributes {npu.note = 1 : i64} {
// CHECK-NEXT: odc.yield %[[X]] : tensor<4xi8>
// CHECK-NEXT: } loc("y")
npu.program @one(%x: tensor<4xi8> loc("x")) -> tensor<4xi8> attributes {npu.note = 1 : i64} {
  odc.yield %x : tensor<4xi8>
} loc("y")

// CHECK: npu.program @none() {
// CHECK-NEXT: npu.isa.halt
npu.program @none() {
  npu.isa.halt
}
