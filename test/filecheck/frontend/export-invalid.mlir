// RUN: odc-opt %s --split-input-file --print-diagnostics --allow-unregistered-dialect -t circle | filecheck %s

func.func @main(%x: tensor<8xf32>) {
  // CHECK: other.op is not an operation of a Circle model (stage export)
  "other.op"(%x) : (tensor<8xf32>) -> ()
  func.return
}

// -----

// CHECK: a module to export holds functions with bodies only, found circle.const (stage export)
%0 = circle.const [1] : tensor<1xi8>

// -----

// CHECK: the model uses a newer schema: operator 999 (stage export)
builtin.module attributes {circle.unknown = ["operator 999"]} {
  func.func @main() {
    func.return
  }
}

// -----

func.func @main() -> tensor<72xi8> {
  // CHECK: the 72 bytes of constant 331cd6525087 are not in this text (stage export); print the IR with --constants keep
  %0 = circle.const #circle.blob<sha256_331cd65250870000000000000000000000000000000000000000000000000000, 72> : tensor<72xi8>
  func.return %0 : tensor<72xi8>
}

// -----

// CHECK: @nowhere is not a function of this module (stage export)
builtin.module attributes {circle.signatures = [{key = "k", subgraph = @nowhere, inputs = [], outputs = []}]} {
  func.func @main() {
    func.return
  }
}

// -----

func.func @main(%x: tensor<8xf32>) {
  // CHECK: circle.relu: operand z is defined by a later operation
  %y = circle.relu(%z) : (tensor<8xf32>) -> tensor<8xf32>
  %z = circle.relu(%x) : (tensor<8xf32>) -> tensor<8xf32> loc("late")
  func.return
}

// -----

// CHECK: key must be a string, found None in {subgraph = @main} (stage export)
builtin.module attributes {circle.signatures = [{subgraph = @main}]} {
  func.func @main() {
    func.return
  }
}

// -----

// CHECK: every entry of circle.metadata must be a dictionary, found [1 : i64] (stage export)
builtin.module attributes {circle.metadata = [1]} {
  func.func @main() {
    func.return
  }
}

// -----

// CHECK: circle.signatures must be an array, found 1 : i64 (stage export)
builtin.module attributes {circle.signatures = 1} {
  func.func @main() {
    func.return
  }
}

// -----

// CHECK: inputs of a signature hold ["name", position below 0], found ["x", 0 : i32] (stage export)
builtin.module attributes {circle.signatures = [{key = "k", subgraph = @main, inputs = [["x", 0 : i32]], outputs = []}]} {
  func.func @main() {
    func.return
  }
}
