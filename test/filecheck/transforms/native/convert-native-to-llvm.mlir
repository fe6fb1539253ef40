// RUN: odc-opt %s --split-input-file -p convert-native-to-llvm | filecheck %s

// Parameters, results and block arguments change their types; a declaration stays one, and only private functions are internal.
builtin.module {
builtin.module @segment_0 {
  func.func private @outside(memref<?xi8>, index) -> ()
  func.func @loop(%buffer: memref<?xi8>, %count: index, %start: i32) -> i32 {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %last = scf.for %i = %zero to %count step %one iter_args(%sum = %start) -> (i32) {
      func.call @outside(%buffer, %i) : (memref<?xi8>, index) -> ()
      %next = arith.addi %sum, %start : i32
      scf.yield %next : i32
    }
    func.return %last : i32
  }
}
}
// CHECK-LABEL: builtin.module @segment_0
// CHECK: llvm.func @outside(!llvm.ptr, i64)
// CHECK: llvm.func @loop(%[[BUFFER:.*]]: !llvm.ptr, %[[COUNT:.*]]: i64, %[[START:.*]]: i32) -> i32 {
// CHECK-NEXT: %[[ZERO:.*]] = llvm.mlir.constant(0) : i64
// CHECK-NEXT: %[[ONE:.*]] = llvm.mlir.constant(1) : i64
// CHECK-NEXT: llvm.br ^[[HEAD:bb[0-9]+]](%[[ZERO]], %[[START]] : i64, i32)
// CHECK-NEXT: ^[[HEAD]](%[[I:.*]]: i64, %[[SUM:.*]]: i32):
// CHECK-NEXT: %[[GOES_ON:.*]] = llvm.icmp "slt" %[[I]], %[[COUNT]] : i64
// CHECK-NEXT: llvm.cond_br %[[GOES_ON]], ^[[BODY:.*]], ^[[END:.*]]
// CHECK: llvm.call @outside(%[[BUFFER]], %[[I]]) : (!llvm.ptr, i64) -> ()
// CHECK-NEXT: llvm.add %[[SUM]], %[[START]] : i32
// CHECK: llvm.return %[[SUM]] : i32

// -----

// Arithmetic has counterparts, or intrinsics for its type; conversions between an index and 64 bits vanish.
builtin.module {
builtin.module @segment_0 {
  func.func private @use(i32, vector<16xf32>, i1, i64) -> ()
  func.func @arithmetic(%a: i32, %v: vector<16xf32>, %n: i64, %i: index, %f: f32) {
    %0 = arith.muli %a, %a : i32
    %1 = arith.minsi %0, %a : i32
    %2 = arith.maximumf %v, %v : vector<16xf32>
    %3 = vector.fma %2, %v, %v : vector<16xf32>
    %4 = arith.extsi %1 : i32 to i64
    %5 = arith.cmpi slt, %4, %n : i64
    %6 = arith.cmpf uno, %f, %f : f32
    %7 = arith.select %5, %4, %n : i64
    %8 = arith.index_cast %7 : i64 to index
    %9 = arith.addi %8, %i : index
    %10 = arith.index_cast %a : i32 to index
    %11 = arith.addi %9, %10 : index
    %12 = arith.index_cast %11 : index to i32
    %13 = arith.index_cast %9 : index to i64
    func.call @use(%12, %3, %6, %13) : (i32, vector<16xf32>, i1, i64) -> ()
    func.return
  }
}
}
// CHECK-LABEL: llvm.func @arithmetic(
// CHECK-NEXT: %[[PRODUCT:.*]] = llvm.mul %a, %a : i32
// CHECK-NEXT: %[[LEAST:.*]] = llvm.call_intrinsic "llvm.smin.i32"(%[[PRODUCT]], %a) : (i32, i32) -> i32
// CHECK-NEXT: %[[MOST:.*]] = llvm.call_intrinsic "llvm.maximum.v16f32"(%v, %v) : (vector<16xf32>, vector<16xf32>) -> vector<16xf32>
// CHECK-NEXT: %[[FUSED:.*]] = llvm.call_intrinsic "llvm.fma.v16f32"(%[[MOST]], %v, %v)
// CHECK-NEXT: %[[WIDE:.*]] = llvm.sext %[[LEAST]] : i32 to i64
// CHECK-NEXT: %[[LESS:.*]] = llvm.icmp "slt" %[[WIDE]], %n : i64
// CHECK-NEXT: %[[UNORDERED:.*]] = llvm.fcmp "uno" %f, %f : f32
// CHECK-NEXT: %[[CHOSEN:.*]] = llvm.select %[[LESS]], %[[WIDE]], %n : i1, i64
// CHECK-NEXT: %[[SUM:.*]] = llvm.add %[[CHOSEN]], %i : i64
// CHECK-NEXT: %[[INDEX:.*]] = llvm.sext %a : i32 to i64
// CHECK-NEXT: %[[TOTAL:.*]] = llvm.add %[[SUM]], %[[INDEX]] : i64
// CHECK-NEXT: %[[NARROW:.*]] = llvm.trunc %[[TOTAL]] : i64 to i32
// CHECK-NEXT: llvm.call @use(%[[NARROW]], %[[FUSED]], %[[UNORDERED]], %[[SUM]])

// -----

// Loads and stores compute an address by the element type; a view is an address.
builtin.module {
builtin.module @segment_0 {
  func.func @memory(%bytes: memref<?xi8>, %i: index) {
    %words = memref.view %bytes[%i][%i] : memref<?xi8> to memref<?xi32>
    %0 = memref.load %words[%i] : memref<?xi32>
    memref.store %0, %words[%i] : memref<?xi32>
    %1 = vector.load %words[%i] : memref<?xi32>, vector<4xi32>
    vector.store %1, %words[%i] : memref<?xi32>, vector<4xi32>
    func.return
  }
}
}
// CHECK-LABEL: llvm.func @memory(%bytes: !llvm.ptr, %i: i64)
// CHECK-NEXT: %[[WORDS:.*]] = llvm.getelementptr inbounds %bytes[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
// CHECK-NEXT: %[[FIRST:.*]] = llvm.getelementptr inbounds %[[WORDS]][%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32
// CHECK-NEXT: %[[NUMBER:.*]] = llvm.load %[[FIRST]] {alignment = 4 : i64} : !llvm.ptr -> i32
// CHECK-NEXT: %[[SECOND:.*]] = llvm.getelementptr inbounds %[[WORDS]][%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32
// CHECK-NEXT: llvm.store %[[NUMBER]], %[[SECOND]] {alignment = 4 : i64} : i32, !llvm.ptr
// CHECK-NEXT: %[[THIRD:.*]] = llvm.getelementptr
// CHECK-NEXT: %[[VECTOR:.*]] = llvm.load %[[THIRD]] {alignment = 4 : i64} : !llvm.ptr -> vector<4xi32>
// CHECK-NEXT: %[[FOURTH:.*]] = llvm.getelementptr
// CHECK-NEXT: llvm.store %[[VECTOR]], %[[FOURTH]] {alignment = 4 : i64} : vector<4xi32>, !llvm.ptr

// -----

// A number or a vector of one element is copied by a shuffle.
builtin.module {
builtin.module @segment_0 {
  func.func private @use(vector<4xi32>, vector<4xi32>, vector<2xi32>, vector<4xi32>) -> ()
  func.func @vectors(%x: i32, %one: vector<1xi32>, %v: vector<4xi32>, %f: vector<4xf32>) {
    %0 = vector.broadcast %x : i32 to vector<4xi32>
    %1 = vector.broadcast %one : vector<1xi32> to vector<4xi32>
    %2 = vector.shuffle %v, %v [2, 0] : vector<4xi32>, vector<4xi32>
    %3 = vector.bitcast %f : vector<4xf32> to vector<4xi32>
    func.call @use(%0, %1, %2, %3) : (vector<4xi32>, vector<4xi32>, vector<2xi32>, vector<4xi32>) -> ()
    func.return
  }
}
}
// CHECK-LABEL: llvm.func @vectors(
// CHECK-NEXT: %[[EMPTY:.*]] = llvm.mlir.undef : vector<1xi32>
// CHECK-NEXT: %[[PLACE:.*]] = llvm.mlir.constant(0) : i64
// CHECK-NEXT: %[[SINGLE:.*]] = llvm.insertelement %x, %[[EMPTY]][%[[PLACE]] : i64] : vector<1xi32>
// CHECK-NEXT: llvm.shufflevector %[[SINGLE]], %[[SINGLE]] [0, 0, 0, 0] : vector<1xi32>
// CHECK-NEXT: llvm.shufflevector %one, %one [0, 0, 0, 0] : vector<1xi32>
// CHECK-NEXT: llvm.shufflevector %v, %v [2, 0] : vector<4xi32>
// CHECK-NEXT: llvm.bitcast %f : vector<4xf32> to vector<4xi32>
