// RUN: odc-opt %s -p native-partition,convert-circle-to-kernels,native-allocate-memory,native-write-kernels,convert-native-to-llvm | filecheck %s

// Memory is a pointer, an index has 64 bits, a loop is a branch; elements of bytes promise no alignment.
func.func @main(%x: tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.max_pool_2d(%x) {padding = valid, stride = [2, 2], filter = [2, 2]} : (tensor<1x2x2x1x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<1x1x1x1x!quant.uniform<i8:f32, 0.5>>
}
// CHECK: llvm.func @segment_0(%{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr)
// CHECK: llvm.call @flip_sign(
// CHECK: llvm.func internal @flip_sign(%[[IN:.*]]: !llvm.ptr, %{{.*}}: !llvm.ptr, %[[COUNT:.*]]: i64) {
// CHECK: llvm.icmp "slt" %[[I:.*]], %[[COUNT]] : i64
// CHECK: %[[AT:.*]] = llvm.getelementptr inbounds %[[IN]][%[[I]]] : (!llvm.ptr, i64) -> !llvm.ptr, i8
// CHECK-NEXT: llvm.load %[[AT]] {alignment = 1 : i64} : !llvm.ptr -> vector<64xi8>
// CHECK-NOT: scf.for
// CHECK-NOT: memref
