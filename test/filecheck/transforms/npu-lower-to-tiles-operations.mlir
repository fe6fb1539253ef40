// RUN: odc-opt %s --split-input-file -p npu-choose-tiles,npu-lower-to-tiles | filecheck %s

// A constant and a view become no instruction: the output is a copy of the constant, and its users read the buffer itself.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @view(%x: tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> (tensor<1x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x!quant.uniform<i8:f32, 0.5>>) {
    %c = npu.constant <"0x01020304"> : tensor<2x2x!quant.uniform<i8:f32, 0.5>>
    %v = npu.reshape %c : tensor<2x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x!quant.uniform<i8:f32, 0.5>>
    %y = npu.elementwise max %x, %v clamp(-128, 127) : tensor<1x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y, %v : tensor<1x4x!quant.uniform<i8:f32, 0.5>>, tensor<1x4x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-LABEL: npu.program @view(
// CHECK: %[[C:.*]] = npu.buffer "" data <"0x01020304">
// CHECK: npu.isa.load source %[[C]]
// CHECK: npu.isa.vop kind "max"
// CHECK: npu.isa.copy source %[[C]]
// CHECK-NEXT: npu.isa.halt

// -----

// Some channels of all pixels at a time.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @reduce(%x: tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.reduce sum %x scale <1073741824, -1> clamp(-128, 127) : tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5>> -> tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x1x1x4x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-LABEL: npu.program @reduce(
// CHECK: npu.isa.load
// CHECK-NEXT: npu.isa.reduce emit 1
// CHECK-NEXT: npu.isa.store
// CHECK-NEXT: npu.isa.halt

// -----

// The largest code of each row.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @argmax(%x: tensor<2x3x!quant.uniform<i8:f32, 0.5>>) -> tensor<2xi32> {
    %y = npu.argmax %x : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<2xi32>
    odc.yield %y : tensor<2xi32>
  }
}
// CHECK-LABEL: npu.program @argmax(
// CHECK: npu.isa.load
// CHECK-NEXT: npu.isa.reduce kind "argmax"
// CHECK-NEXT: npu.isa.store
// CHECK-NEXT: npu.isa.halt

// -----

// All tables are copied, unless the result takes their place, and rows are replaced.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @update(%x: tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, %z: tensor<2x3x4x!quant.uniform<i8:f32, 0.5>>, %s: tensor<3xi32>) -> tensor<2x5x4x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.update %x at %s[1] to %z : tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>, tensor<2x3x4x!quant.uniform<i8:f32, 0.5>>, tensor<3xi32> -> tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<2x5x4x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-LABEL: npu.program @update(
// CHECK: npu.isa.copy {{.*}} bytes 40
// CHECK-NEXT: npu.isa.scatter {{.*}} position %{{.*}} + 4 {{.*}} count 2 rows 5 row_bytes 4 taken 3
// CHECK-NEXT: npu.isa.halt

// -----

// Rows go from memory to memory.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @gather(%t: tensor<1x1x3x64x!quant.uniform<i8:f32, 0.5>>, %i: tensor<1x2xi32>) -> tensor<1x1x2x64x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.gather %t[%i] : tensor<1x1x3x64x!quant.uniform<i8:f32, 0.5>>, tensor<1x2xi32> -> tensor<1x1x2x64x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x1x2x64x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-LABEL: npu.program @gather(
// CHECK: npu.isa.gather {{.*}} count 2 rows 3 row_bytes 64
// CHECK-NEXT: npu.isa.halt

// -----

// Every pixel twice in both directions.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @resize(%x: tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.resize nearest %x start [0, 0] step [8388608, 8388608] : tensor<1x2x2x4x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x4x4x4x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK-LABEL: npu.program @resize(
// CHECK: npu.isa.load
// CHECK-NEXT: npu.isa.resize
// CHECK-NEXT: npu.isa.store
// CHECK-NEXT: npu.isa.halt

// -----

// Rows are computed in place.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @softmax(%x: tensor<2x3x!quant.uniform<i8:f32, 0.5>>) -> tensor<2x3x!quant.uniform<i8:f32, 0.00390625:-128>> {
    %y = npu.softmax %x scale <1073741824, 5> diff_min -124 : tensor<2x3x!quant.uniform<i8:f32, 0.5>> -> tensor<2x3x!quant.uniform<i8:f32, 0.00390625:-128>>
    odc.yield %y : tensor<2x3x!quant.uniform<i8:f32, 0.00390625:-128>>
  }
}
// CHECK-LABEL: npu.program @softmax(
// CHECK: npu.isa.load {{.*}} target %[[ROWS:[a-z0-9_]+]]
// CHECK-NEXT: npu.isa.softmax {{.*}} input %[[ROWS]] {{.*}} output %[[ROWS]]
// CHECK-NEXT: npu.isa.store {{.*}} source %[[ROWS]]
// CHECK-NEXT: npu.isa.halt

// -----

// A cell of one unit, one step: gates, cell, hidden state, and both states at the end.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram>} {
  npu.program @lstm(%x: tensor<1x1x2x!quant.uniform<i8:f32, 0.5>>, %h: tensor<1x1x!quant.uniform<i8:f32, 0.5>>, %c: tensor<1x1x!quant.uniform<i16:f32, 0.00048828125>>) -> (tensor<1x1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.00048828125>>) {
    %y, %lh, %lc = npu.lstm %x, %h, %c inputs <"0x0102030405060708"> bias <1, 2, 3, 4> scales [#npu.scale<1073741824, 4>, #npu.scale<1073741824, 4>, #npu.scale<1073741824, 4>, #npu.scale<1073741824, 4>] recurrent <"0x01020304"> scales [#npu.scale<1073741824, 4>, #npu.scale<1073741824, 4>, #npu.scale<1073741824, 4>, #npu.scale<1073741824, 4>] cell_exponent -11 scale <1073741824, -22> : (tensor<1x1x2x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.00048828125>>) -> (tensor<1x1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.00048828125>>)
    odc.yield %y, %lh, %lc : tensor<1x1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i8:f32, 0.5>>, tensor<1x1x!quant.uniform<i16:f32, 0.00048828125>>
  }
}
// CHECK-LABEL: npu.program @lstm(
// CHECK: npu.isa.conv
// CHECK: npu.isa.gates {{.*}} cell %[[CELL:[a-z0-9_]+]] hidden %[[HIDDEN:[a-z0-9_]+]]
// CHECK-NEXT: npu.isa.store {{.*}} source %[[HIDDEN]]
// CHECK-NEXT: npu.isa.store {{.*}} source %[[HIDDEN]]
// CHECK-NEXT: npu.isa.store {{.*}} source %[[CELL]]
// CHECK-NEXT: npu.isa.halt
