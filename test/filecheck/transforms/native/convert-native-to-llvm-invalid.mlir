// RUN: odc-opt %s --split-input-file --print-diagnostics -p convert-native-to-llvm | filecheck %s

// An operation without a counterpart.
builtin.module {
builtin.module @segment_0 {
  func.func @f(%a: i32, %out: memref<?xi32>, %i: index) {
    %0 = arith.remui %a, %a : i32
    memref.store %0, %out[%i] : memref<?xi32>
    func.return
  }
}
}
// CHECK: illegal after convert-native-to-llvm: no pattern lowers this operation
// CHECK-SAME: arith.remui

// -----

// A buffer that is not flat.
builtin.module {
builtin.module @segment_0 {
  func.func @f(%a: i32, %out: memref<?x?xi32>, %i: index) {
    memref.store %a, %out[%i, %i] : memref<?x?xi32>
    func.return
  }
}
}
// CHECK: memref.store with 2 indices has no form in the llvm dialect, only with one
