// RUN: odc-opt %s --print-diagnostics --npu-choose-segments | filecheck %s
// RUN: odc-opt %s --print-diagnostics -p 'odc-set-target,npu-choose-segments{strategy=best}' | filecheck %s --check-prefix STRATEGY
// RUN: odc-opt %s --print-diagnostics -p 'odc-set-target,npu-choose-segments{max-segments=-1}' | filecheck %s --check-prefix COUNT

func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  func.return %x : tensor<1x4xf32>
}
// CHECK: no target is chosen {{.*}}; run odc-set-target first
// STRATEGY: strategy is 'best', allowed: cost, supported
// COUNT: max-segments is -1, it must be at least 0
