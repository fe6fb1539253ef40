// RUN: odc-opt %s --odc-set-target='target=npu-512 memory=sram prefer=memory sram-limit=65536' | filecheck %s
// RUN: odc-opt %s --odc-set-target | filecheck %s --check-prefix DEFAULT

// CHECK: builtin.module attributes {odc.target = #odc.target<"npu-512", memory = sram, prefer = memory, sram_limit = 65536, numerics = fixed>}
// DEFAULT: builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash, prefer = performance, numerics = fixed>}

func.func @main() {
  func.return
}
