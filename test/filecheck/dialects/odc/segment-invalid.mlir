// RUN: odc-opt %s --split-input-file --print-diagnostics | filecheck %s

func.func @arguments(%x: tensor<8xf32>) {
  // CHECK: segment @s: arguments of the circle body must be (tensor<8xf32>), found (tensor<4xf32>)
  odc.segment @s(%x) : (tensor<8xf32>) -> () circle {
  ^bb0(%a: tensor<4xf32>):
    odc.yield
  }
  func.return
}

// -----

func.func @results(%x: tensor<8xf32>) {
  // CHECK: segment @s: results of the circle body must be (tensor<8xf32>), found ()
  %0 = odc.segment @s(%x) : (tensor<8xf32>) -> tensor<8xf32> circle {
  ^bb0(%a: tensor<8xf32>):
    odc.yield
  }
  func.return
}

// -----

func.func @terminator(%x: tensor<8xf32>) {
  // CHECK: segment @s: the circle body must end in odc.yield, found test.termop
  odc.segment @s(%x) : (tensor<8xf32>) -> () circle {
  ^bb0(%a: tensor<8xf32>):
    "test.termop"() : () -> ()
  }
  func.return
}

// -----

func.func @program(%x: tensor<8xf32>) {
  // CHECK: segment @s: its program has the type () -> (), must have (tensor<8xf32>) -> tensor<8xf32>
  %0 = odc.segment @s(%x) : (tensor<8xf32>) -> tensor<8xf32> circle {
  ^bb0(%a: tensor<8xf32>):
    odc.yield %a : tensor<8xf32>
  }
  func.return
}
npu.program @s() {
  odc.yield
}

// -----

func.func @isolated(%x: tensor<8xf32>) {
  // CHECK: operation using value defined out of its IsolatedFromAbove parent
  odc.segment @s() : () -> () circle {
    %0 = circle.relu(%x) : (tensor<8xf32>) -> tensor<8xf32>
    odc.yield
  }
  func.return
}

// -----

// CHECK: memory is 'ram', allowed: flash, sram
"test.op"() {t = #odc.target<"npu-256", memory = ram>} : () -> ()

// -----

// CHECK: sram_limit is 0, must be at least 1
"test.op"() {t = #odc.target<"npu-256", sram_limit = 0>} : () -> ()

// -----

// CHECK: the target's name is empty
"test.op"() {t = #odc.target<"">} : () -> ()

// -----

// CHECK: unexpected speed, allowed once each: memory, prefer, sram_limit, numerics, allow_host, strategy, min_operators, min_macs, max_segments
"test.op"() {t = #odc.target<"npu-256", speed = high>} : () -> ()

// -----

// CHECK: strategy is 'all', allowed: cost, supported
"test.op"() {t = #odc.target<"npu-256", strategy = all>} : () -> ()
