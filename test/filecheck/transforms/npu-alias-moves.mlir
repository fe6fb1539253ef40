// RUN: odc-opt %s --split-input-file -p npu-alias-moves | filecheck %s

// A slice is read where it lies; so are results that are put one behind the other written there at once.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @segment_0(%x: tensor<1x4x4x2xi8>) -> tensor<1x4x4x2xi8> {
    %a = npu.move %x copies [array<i32: 0, 0, 0, 16, 1, 1>] : tensor<1x4x4x2xi8> -> tensor<1x2x4x2xi8>
    %b = npu.move %x copies [array<i32: 0, 16, 0, 2, 8, 8, 8, 1, 1>] : tensor<1x4x4x2xi8> -> tensor<1x2x4x2xi8>
    %c = npu.pool max %a kernel [1, 1] clamp(-128, 127) : tensor<1x2x4x2xi8> -> tensor<1x2x4x2xi8>
    %d = npu.pool max %b kernel [1, 1] clamp(-128, 127) : tensor<1x2x4x2xi8> -> tensor<1x2x4x2xi8>
    %y = npu.move %c, %d copies [array<i32: 0, 0, 0, 16, 1, 1>, array<i32: 1, 0, 16, 16, 1, 1>] : tensor<1x2x4x2xi8>, tensor<1x2x4x2xi8> -> tensor<1x4x4x2xi8>
    odc.yield %y : tensor<1x4x4x2xi8>
  }
}
// CHECK: npu.move %x copies [array<i32: 0, 0, 0, 16, 1, 1>] {npu.view}
// CHECK: npu.move %x copies [array<i32: 0, 16, 0, 2, 8, 8, 8, 1, 1>] {npu.view}
// CHECK: npu.move %c, %d copies {{.*}} {npu.view}

// -----

// What changes the order of elements, joins inputs or the same tensor twice, or is an output of the program, is moved.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @segment_0(%x: tensor<1x2x2x2xi8>) -> (tensor<1x1x2x2xi8>, tensor<1x2x2x2xi8>, tensor<1x4x2x2xi8>, tensor<1x4x2x2xi8>) {
    %slice = npu.move %x copies [array<i32: 0, 0, 0, 4, 1, 1>] : tensor<1x2x2x2xi8> -> tensor<1x1x2x2xi8>
    %turned = npu.move %x copies [array<i32: 0, 0, 0, 2, 1, 4, 4, 2, 1>] : tensor<1x2x2x2xi8> -> tensor<1x2x2x2xi8>
    %inputs = npu.move %x, %turned copies [array<i32: 0, 0, 0, 8, 1, 1>, array<i32: 1, 0, 8, 8, 1, 1>] : tensor<1x2x2x2xi8>, tensor<1x2x2x2xi8> -> tensor<1x4x2x2xi8>
    %p = npu.pool max %x kernel [1, 1] clamp(-128, 127) : tensor<1x2x2x2xi8> -> tensor<1x2x2x2xi8>
    %twice = npu.move %p copies [array<i32: 0, 0, 0, 8, 1, 1>, array<i32: 0, 0, 8, 8, 1, 1>] : tensor<1x2x2x2xi8> -> tensor<1x4x2x2xi8>
    odc.yield %slice, %turned, %inputs, %twice : tensor<1x1x2x2xi8>, tensor<1x2x2x2xi8>, tensor<1x4x2x2xi8>, tensor<1x4x2x2xi8>
  }
}
// CHECK-NOT: npu.view

// -----

// Rows that are joined for matrix products, whichever operand, are loaded where they are; others read the result too.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @segment_0(%old: tensor<1x2x7x8xi8>, %new: tensor<1x2x1x8xi8>, %q: tensor<2x1x8x1xi8>, %p: tensor<2x1x3x8xi8>) -> (tensor<2x1x8x1xi8>, tensor<2x1x3x8xi8>, tensor<1x2x8x8xi8>) {
    %keys = npu.move %old, %new copies [array<i32: 0, 0, 0, 2, 56, 64, 56, 1, 1>, array<i32: 1, 0, 56, 2, 8, 64, 8, 1, 1>] : tensor<1x2x7x8xi8>, tensor<1x2x1x8xi8> -> tensor<1x2x8x8xi8>
    %k = npu.reshape %keys : tensor<1x2x8x8xi8> -> tensor<2x1x8x8xi8>
    %scores = npu.matmul %k, %q scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x8x8xi8>, tensor<2x1x8x1xi8> -> tensor<2x1x8x1xi8>
    %values = npu.move %old, %new copies [array<i32: 0, 0, 0, 2, 56, 64, 56, 1, 1>, array<i32: 1, 0, 56, 2, 8, 64, 8, 1, 1>] : tensor<1x2x7x8xi8>, tensor<1x2x1x8xi8> -> tensor<1x2x8x8xi8>
    %v = npu.reshape %values : tensor<1x2x8x8xi8> -> tensor<2x1x8x8xi8>
    %mixed = npu.matmul %p, %v scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x3x8xi8>, tensor<2x1x8x8xi8> -> tensor<2x1x3x8xi8>
    %other = npu.move %new, %old copies [array<i32: 0, 0, 0, 2, 8, 64, 8, 1, 1>, array<i32: 1, 0, 8, 2, 56, 64, 56, 1, 1>] : tensor<1x2x1x8xi8>, tensor<1x2x7x8xi8> -> tensor<1x2x8x8xi8>
    %pooled = npu.pool max %other kernel [1, 1] clamp(-128, 127) : tensor<1x2x8x8xi8> -> tensor<1x2x8x8xi8>
    odc.yield %scores, %mixed, %pooled : tensor<2x1x8x1xi8>, tensor<2x1x3x8xi8>, tensor<1x2x8x8xi8>
  }
}
// CHECK: %keys = {{.*}} {npu.parts}
// CHECK: %values = {{.*}} {npu.parts}
// CHECK: %other = npu.move %new, %old copies {{.*}}] : tensor

// -----

// The next contents of a cache, the last of its rows and a new one, are moved from where the rows are, behind the product.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @segment_0(%old: tensor<1x2x7x8xi8>, %new: tensor<1x2x1x8xi8>, %q: tensor<2x1x8x1xi8>) -> (tensor<2x1x8x1xi8>, tensor<1x2x7x8xi8>) {
    %keys = npu.move %old, %new copies [array<i32: 0, 0, 0, 2, 56, 64, 56, 1, 1>, array<i32: 1, 0, 56, 2, 8, 64, 8, 1, 1>] : tensor<1x2x7x8xi8>, tensor<1x2x1x8xi8> -> tensor<1x2x8x8xi8>
    %k = npu.reshape %keys : tensor<1x2x8x8xi8> -> tensor<2x1x8x8xi8>
    %scores = npu.matmul %k, %q scale <1073741824, 0> clamp(-128, 127) : tensor<2x1x8x8xi8>, tensor<2x1x8x1xi8> -> tensor<2x1x8x1xi8>
    %most = npu.pool max %scores kernel [1, 1] clamp(-128, 127) : tensor<2x1x8x1xi8> -> tensor<2x1x8x1xi8>
    %next = npu.move %keys copies [array<i32: 0, 8, 0, 2, 64, 56, 56, 1, 1>] : tensor<1x2x8x8xi8> -> tensor<1x2x7x8xi8>
    odc.yield %most, %next : tensor<2x1x8x1xi8>, tensor<1x2x7x8xi8>
  }
}
// CHECK: %keys = {{.*}} {npu.parts}
// CHECK: %scores = npu.matmul
// CHECK-NEXT: %next = npu.move %old, %new copies [array<i32: 0, 8, 0, 2, 56, 56, 48, 1, 1>, array<i32: 1, 0, 48, 2, 8, 56, 8, 1, 1>]
// CHECK-NEXT: %most

// -----

// The next contents come behind the product if it reads views of the cache, too. Nothing joins the whole cache any more.
builtin.module attributes {odc.target = #odc.target<"npu-256">} {
  npu.program @segment_0(%old: tensor<1x2x7x8xi8>, %new: tensor<1x2x1x8xi8>, %q: tensor<1x1x8x1xi8>) -> (tensor<1x1x8x1xi8>, tensor<1x2x7x8xi8>) {
    %keys = npu.move %old, %new copies [array<i32: 0, 0, 0, 2, 56, 64, 56, 1, 1>, array<i32: 1, 0, 56, 2, 8, 64, 8, 1, 1>] : tensor<1x2x7x8xi8>, tensor<1x2x1x8xi8> -> tensor<1x2x8x8xi8>
    %k = npu.reshape %keys : tensor<1x2x8x8xi8> -> tensor<2x1x8x8xi8>
    %old0 = npu.move %old copies [array<i32: 0, 0, 0, 56, 1, 1>] : tensor<1x2x7x8xi8> -> tensor<1x1x7x8xi8>
    %new0 = npu.move %new copies [array<i32: 0, 0, 0, 8, 1, 1>] : tensor<1x2x1x8xi8> -> tensor<1x1x1x8xi8>
    %keys0 = npu.move %old0, %new0 copies [array<i32: 0, 0, 0, 56, 1, 1>, array<i32: 1, 0, 56, 8, 1, 1>] : tensor<1x1x7x8xi8>, tensor<1x1x1x8xi8> -> tensor<1x1x8x8xi8>
    %scores = npu.matmul %keys0, %q scale <1073741824, 0> clamp(-128, 127) : tensor<1x1x8x8xi8>, tensor<1x1x8x1xi8> -> tensor<1x1x8x1xi8>
    %most = npu.pool max %scores kernel [1, 1] clamp(-128, 127) : tensor<1x1x8x1xi8> -> tensor<1x1x8x1xi8>
    %next = npu.move %k copies [array<i32: 0, 8, 0, 2, 64, 56, 56, 1, 1>] : tensor<2x1x8x8xi8> -> tensor<1x2x7x8xi8>
    odc.yield %most, %next : tensor<1x1x8x1xi8>, tensor<1x2x7x8xi8>
  }
}
// CHECK-NOT: tensor<1x2x8x8xi8>
// CHECK: %scores = npu.matmul
// CHECK-NEXT: %next = npu.move %old, %new copies
// CHECK-NEXT: %most
