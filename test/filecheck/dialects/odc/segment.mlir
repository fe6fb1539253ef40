// RUN: odc-opt %s | filecheck %s
// RUN: odc-opt %s | odc-opt | filecheck %s
// RUN: odc-opt %s --print-op-generic | odc-opt | filecheck %s

// CHECK: odc.target = #odc.target<"npu-256", memory = sram, prefer = "compile-time", sram_limit = 65536, numerics = fixed>
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = sram, prefer = "compile-time", sram_limit = 65536>} {
  // CHECK-LABEL: func.func @main
  func.func @main(%x: tensor<1x8xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>) {
    // CHECK: [[R:%.+]], [[S:%.+]] = odc.segment @segment_0(%x) : (tensor<1x8xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>) circle {
    // CHECK-NEXT: ^bb0([[A:%.+]]: tensor<1x8xf32>):
    // CHECK-NEXT:   [[B:%.+]] = circle.relu([[A]])
    // CHECK-NEXT:   odc.yield [[B]], [[A]] : tensor<1x8xf32>, tensor<1x8xf32>
    // CHECK-NEXT: }
    %r, %s = odc.segment @segment_0(%x) : (tensor<1x8xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>) circle {
    ^bb0(%a: tensor<1x8xf32>):
      %b = circle.relu(%a) : (tensor<1x8xf32>) -> tensor<1x8xf32>
      odc.yield %b, %a : tensor<1x8xf32>, tensor<1x8xf32>
    }
    // CHECK: odc.segment @segment_1([[R]]) : (tensor<1x8xf32>) -> tensor<1x8xf32> for "npu-256" circle {
    // CHECK: } attributes {test.note}
    %t = odc.segment @segment_1(%r) : (tensor<1x8xf32>) -> tensor<1x8xf32> for "npu-256" circle {
    ^bb0(%a: tensor<1x8xf32>):
      odc.yield %a : tensor<1x8xf32>
    } attributes {test.note}
    // CHECK: "test.op"() {t = #odc.target<"a", memory = flash, prefer = performance, numerics = fixed, allow_host = true, strategy = supported, min_operators = 0, min_macs = 5, max_segments = 0>}
    "test.op"() {t = #odc.target<"a", max_segments = 0, min_macs = 5, min_operators = 0, strategy = supported, allow_host = true>} : () -> ()
    // CHECK: "test.op"() {t = #odc.target<"a", memory = flash, prefer = performance, numerics = fixed>}
    "test.op"() {t = #odc.target<"a", allow_host = false, min_operators = 1, min_macs = 0, strategy = cost>} : () -> ()
    func.return %s, %t : tensor<1x8xf32>, tensor<1x8xf32>
  }
}
