// RUN: not odc-opt %s --odc-set-target='target=npu-3' 2>&1 | filecheck %s --check-prefix TARGET
// RUN: not odc-opt %s --odc-set-target='memory=tape' 2>&1 | filecheck %s --check-prefix MEMORY
// RUN: not odc-opt %s --odc-set-target='prefer=luck' 2>&1 | filecheck %s --check-prefix PREFER
// RUN: not odc-opt %s --odc-set-target='sram-limit=5000000' 2>&1 | filecheck %s --check-prefix LIMIT

// TARGET: error: unknown target 'npu-3' (pass odc-set-target); use one of npu-128, npu-2048, npu-256, npu-512, or a .toml file
// MEMORY: error: memory is 'tape', allowed: flash, sram
// PREFER: error: prefer is 'luck', allowed: performance, memory, compile-time
// LIMIT: error: the SRAM limit is 5000000 bytes, allowed: 1 to 4194304 (npu-256)

func.func @main() {
  func.return
}
