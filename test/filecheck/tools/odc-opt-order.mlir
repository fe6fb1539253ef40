// RUN: odc-opt %s --print-between-passes --dce -p 'canonicalize,cse' --circle-infer-shapes 2>&1 | filecheck %s
// RUN: odc-opt %s --stage circle --print-between-passes 2>&1 | filecheck %s --check-prefix=STAGE
// RUN: odc-opt %s -p circle --print-between-passes 2>&1 | filecheck %s --check-prefix=STAGE
// RUN: odc-opt %s --timing --dce 2>&1 | filecheck %s --check-prefix=TIME

// Passes run in the order of the command line, whatever flag names them; a stage's name stands for its passes.
// CHECK: IR after dce:
// CHECK: IR after canonicalize:
// CHECK: IR after cse:
// CHECK: IR after circle-infer-shapes:
// STAGE: IR after circle-infer-shapes:
// STAGE-NOT: IR after
// TIME: {{[0-9.]+}} s 100.0 %  total
// TIME: {{[0-9.]+}} s {{.*}} %    dce
func.func @main() {
  func.return
}
