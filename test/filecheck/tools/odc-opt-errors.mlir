// RUN: not odc-opt %s --unheard-of 2>&1 | filecheck %s --check-prefix=FLAG
// RUN: not odc-opt %s -p unheard-of 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not odc-opt %s -p 'dce{' 2>&1 | filecheck %s --check-prefix=PIPELINE
// RUN: not odc-opt %s --stage no-such-stage 2>&1 | filecheck %s --check-prefix=STAGE
// RUN: not odc-opt %s --circle-infer-shapes=fast=true 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not odc-opt %s -t no-such-target 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: not odc-opt %S/no-such-file 2>&1 | filecheck %s --check-prefix=FILE
// RUN: not odc-opt %s -p npu-aloc 2>&1 | filecheck %s --check-prefix=NEAR-PASS
// RUN: not odc-opt %s --stage npu-shed 2>&1 | filecheck %s --check-prefix=NEAR-STAGE
// RUN: not odc-opt %s --print-ir-after=npu-insert-sink 2>&1 | filecheck %s --check-prefix=NEAR-PRINT
// RUN: not odc-opt --help=npu-allocate-locl 2>&1 | filecheck %s --check-prefix=NEAR-HELP

// Each is one line that says what is wrong and what is allowed.
// FLAG: odc-opt: error: unrecognized arguments: --unheard-of
// PASS: odc-opt: error: unknown pass 'unheard-of'; odc-opt --list-passes lists them
// PIPELINE: odc-opt: error: cannot read the pipeline 'dce{': Expected argument name here
// STAGE: odc-opt: error: unknown stage 'no-such-stage'; use one of circle, circle-opt,
// OPTION: odc-opt: error: pass 'circle-infer-shapes': provided arguments ["fast"] not found in expected arguments
// TARGET: odc-opt: error: argument -t/--emit: invalid choice: 'no-such-target' (choose from mlir, circle,
// FILE: odc-opt: error: cannot read the model: No such file or directory (in {{.*}}no-such-file)
// NEAR-PASS: odc-opt: error: unknown pass 'npu-aloc'; did you mean 'npu-alloc'? odc-opt --list-passes lists them
// NEAR-STAGE: odc-opt: error: unknown stage 'npu-shed'; did you mean 'npu-sched'? use one of circle, circle-opt,
// NEAR-PRINT: odc-opt: error: no such pass: --print-ir-after=npu-insert-sink; did you mean 'npu-insert-sync'?
// NEAR-HELP: odc-opt: error: unknown pass 'npu-allocate-locl'; did you mean 'npu-allocate-local'?
func.func @main() {
  func.return
}
