// RUN: odc-opt %s -p native-allocate-memory | filecheck %s

// A buffer lives as long as a view of one of its views: what is allocated meanwhile has other bytes.
builtin.module {
  builtin.module @segment_0 {
    func.func @segment_0(%in0: memref<?xi8>, %arena: memref<?xi8>, %constants: memref<?xi8>) -> i32 {
      %size = arith.constant 64 : index
      %zero = arith.constant 0 : index
      %a = memref.alloc(%size) : memref<?xi8>
      %view = memref.view %a[%zero][%size] : memref<?xi8> to memref<?xi8>
      %inner = memref.view %view[%zero][%size] : memref<?xi8> to memref<?xi8>
      func.call @kernel(%in0, %a) : (memref<?xi8>, memref<?xi8>) -> ()
      %b = memref.alloc(%size) : memref<?xi8>
      func.call @kernel(%in0, %b) : (memref<?xi8>, memref<?xi8>) -> ()
      func.call @kernel(%inner, %b) : (memref<?xi8>, memref<?xi8>) -> ()
      %status = arith.constant 0 : i32
      func.return %status : i32
    }
    func.func private @kernel(memref<?xi8>, memref<?xi8>) -> () attributes {native.kernel = "flip_sign", native.options = {}}
  }
}
// CHECK: native.arena_bytes = 640 : i64
// CHECK: %[[A:a[_0-9]*]] = arith.constant 0 : index
// CHECK-NEXT: memref.view %arena[%[[A]]]
// CHECK: %[[B:b[_0-9]*]] = arith.constant 320 : index
// CHECK-NEXT: memref.view %arena[%[[B]]]
