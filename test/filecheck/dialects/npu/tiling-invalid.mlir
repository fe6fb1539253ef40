// RUN: odc-opt %s --split-input-file --print-diagnostics | filecheck %s

"test.op"() {a = #npu.tiling<bananas = 7>} : () -> ()
// CHECK: field 'bananas' does not exist, allowed: rows, cols

// -----

"test.op"() {a = #npu.tiling<rows = 1, rows = 1>} : () -> ()
// CHECK: field 'rows' is given twice

// -----

"test.op"() {a = #npu.tiling<rows = 1, cols = 1, group = 1, k_slice = 1>} : () -> ()
// CHECK: field 'block' is missing

// -----

"test.op"() {a = #npu.tiling<rows = 0, cols = 1, group = 1, block = 1, k_slice = 1>} : () -> ()
// CHECK: rows is 0, at least 1 is needed

// -----

"test.op"() {a = #npu.tiling<rows = 1, cols = 1, group = 1, block = 1, k_slice = 1, in_slots = -1>} : () -> ()
// CHECK: in_slots is -1, at least 0 is needed

// -----

"test.op"() {a = #npu.tiling<rows = 1, cols = 1, group = 1, block = 2, k_slice = 1>} : () -> ()
// CHECK: block is 2, allowed: 1 to group, 1

// -----

"test.op"() {a = #npu.tiling<rows = 1, cols = 1, group = 1, block = 1, k_slice = 1, shape = 4>} : () -> ()
// CHECK: shape is 4, allowed: 0 to 3

// -----

"test.op"() {a = #npu.tiling<rows = 1, cols = 1, group = 1, block = 1, k_slice = 1, operand_slots = 1>} : () -> ()
// CHECK: operand_slots is 1, allowed: 0 or out_slots, 2

// -----

"test.op"() {a = #npu.resident<top = -1>} : () -> ()
// CHECK: top is -1, at least 0 is needed

// -----

"test.op"() {a = #npu.resident<fill = 40000>} : () -> ()
// CHECK: fill is 40000, allowed: -32768 to 32767

// -----

"test.op"() {a = #npu.resident<address = 0>} : () -> ()
// CHECK: field 'address' does not exist, allowed: top, left, bottom, right, fill
