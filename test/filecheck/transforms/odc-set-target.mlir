// RUN: odc-opt %s --odc-set-target='target=npu-512 memory=sram prefer=memory sram-limit=65536' | filecheck %s
// RUN: odc-opt %s --odc-set-target | filecheck %s --check-prefix DEFAULT
// RUN: odc-opt %s --odc-set-target='sram-limit=4096 allow-host=true' | odc-opt | filecheck %s --check-prefix HOST

// CHECK: builtin.module attributes {odc.target = #odc.target<"npu-512", memory = sram, prefer = memory, sram_limit = 65536, numerics = fixed>}
// HOST: sram_limit = 4096, numerics = fixed, allow_host = true>
// DEFAULT: builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash, prefer = performance, numerics = fixed>}

func.func @main() {
  func.return
}
