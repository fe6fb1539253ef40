// RUN: odc-opt %s --allow-unregistered-dialect | filecheck %s
// RUN: not odc-opt %s 2>&1 | filecheck %s --check-prefix=REFUSED
// RUN: odc-opt %s --allow-unregistered-dialect --print-op-generic | xdsl-opt --allow-unregistered-dialect | filecheck %s

// CHECK: "other.op"() {a = #other.attr<1>} : () -> !other.type
// REFUSED: odc-opt: error: {{.*}}other.{{.*}} is not registered (in {{.*}}odc-opt-unregistered.mlir:7:
%0 = "other.op"() {a = #other.attr<1>} : () -> !other.type
