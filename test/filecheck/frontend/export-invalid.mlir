// RUN: odc-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect -t circle | filecheck %s

func.func @main(%x: tensor<8xf32>) {
  // CHECK: other.op is no operation of a Circle model (stage export)
  "other.op"(%x) : (tensor<8xf32>) -> ()
  func.return
}

// -----

// CHECK: a module to export holds functions with bodies only, found circle.const (stage export)
%0 = circle.const [1] : tensor<1xi8>

// -----

// CHECK: the model is of a newer schema: operator 999 (stage export)
builtin.module attributes {circle.unknown = ["operator 999"]} {
  func.func @main() {
    func.return
  }
}

// -----

func.func @main() -> tensor<72xi8> {
  // CHECK: the 72 bytes of constant 331cd6525087 are not in this text (stage export); print the IR with --constants keep
  %0 = circle.const #circle.blob<"331cd65250870000000000000000000000000000000000000000000000000000", 72> : tensor<72xi8>
  func.return %0 : tensor<72xi8>
}

// -----

// CHECK: @nowhere is no function of this module (stage export)
builtin.module attributes {circle.signatures = [{key = "k", subgraph = @nowhere, inputs = [], outputs = []}]} {
  func.func @main() {
    func.return
  }
}
