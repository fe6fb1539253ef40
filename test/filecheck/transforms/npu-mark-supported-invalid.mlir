// RUN: not odc-opt %s --npu-mark-supported 2>&1 | filecheck %s

func.func @main() {
  func.return
}
// CHECK: error: no target is chosen (pass npu-mark-supported); run odc-set-target first
