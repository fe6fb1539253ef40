// RUN: not odc-opt %s --no-such-pass 2>&1 | filecheck %s --check-prefix=FLAG
// RUN: not odc-opt %s -p no-such-pass 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not odc-opt %s -p 'dce{' 2>&1 | filecheck %s --check-prefix=PIPELINE
// RUN: not odc-opt %s --stage no-such-stage 2>&1 | filecheck %s --check-prefix=STAGE
// RUN: not odc-opt %s --circle-infer-shapes=fast=true 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not odc-opt %s -t no-such-target 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: not odc-opt %S/no-such-file 2>&1 | filecheck %s --check-prefix=FILE

// Each is one line that says what is wrong and what is allowed.
// FLAG: odc-opt: error: unrecognized arguments: --no-such-pass
// PASS: odc-opt: error: unknown pass 'no-such-pass'; odc-opt --list-passes lists them
// PIPELINE: odc-opt: error: cannot read the pipeline 'dce{': Expected argument name here
// STAGE: odc-opt: error: unknown stage 'no-such-stage'; use one of circle, circle-opt,
// OPTION: odc-opt: error: pass 'circle-infer-shapes': provided arguments ["fast"] not found in expected arguments
// TARGET: odc-opt: error: argument -t/--emit: invalid choice: 'no-such-target' (choose from mlir, circle,
// FILE: odc-opt: error: cannot read the model: No such file or directory (in {{.*}}no-such-file)
func.func @main() {
  func.return
}
