// RUN: odc-opt %s --split-input-file --print-diagnostics | filecheck %s

npu.program @p(%x: tensor<4xi8>) -> tensor<8xi8> {
  odc.yield %x : tensor<4xi8>
}
// CHECK: program @p: the body gives (tensor<4xi8>), declared is (tensor<8xi8>)

// -----

"npu.program"() <{sym_name = "p", function_type = (tensor<8xi8>) -> ()}> ({
^bb0(%x: tensor<4xi8>):
  odc.yield
}) : () -> ()
// CHECK: program @p: the body takes (tensor<4xi8>), declared is (tensor<8xi8>)

// -----

func.func @main(%x: tensor<4xi8>) {
  func.return
}
npu.program @main() {
  odc.yield
}
// CHECK: redefinition of symbol "main"

// -----

%outside = npu.buffer "t" : !npu.buffer<tile, 8xi8>
npu.program @p() {
  npu.isa.fill target %outside bytes 8
  npu.isa.halt
}
// CHECK: operation using value defined out of its IsolatedFromAbove parent
