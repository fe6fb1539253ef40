// RUN: not odc-opt %s -p "quant-assign-params{scheme=int9}" 2>&1 | filecheck %s --check-prefix=SCHEME
// RUN: not odc-opt %s -p "quant-assign-params{scheme=int8_wo}" 2>&1 | filecheck %s --check-prefix=WEIGHTS
// RUN: not odc-opt %s -p "quant-assign-params{scheme=int16 granularity=tensor}" 2>&1 | filecheck %s --check-prefix=GRANULARITY
// RUN: not odc-opt %s -p "quant-assign-params{scheme=int8 weights=asymmetric}" 2>&1 | filecheck %s --check-prefix=FORM
// RUN: not odc-opt %s -p "quant-assign-params{scheme=int8 overrides=\"z:int16\"}" 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not odc-opt %s -p "quant-assign-params{scheme=int8 overrides=\"x:int7\"}" 2>&1 | filecheck %s --check-prefix=PRECISION
// RUN: not odc-opt %s -p "quant-assign-params{config=\"%s\"}" 2>&1 | filecheck %s --check-prefix=CONFIG

func.func @main(%x: tensor<4xf32> loc("x")) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
// SCHEME: error: unknown quantisation scheme 'int9'{{.*}}; use one of uint8, int8, int8x4, int16, int16x8
// WEIGHTS: error: scheme 'int8_wo' quantises weights only{{.*}}; run quant-weights-only instead
// GRANULARITY: error: scheme 'int16' has one scale per channel; granularity 'tensor' is not possible
// FORM: error: weights of scheme 'int8' are symmetric; only uint8 ones can be asymmetric{{.*}}; use the scheme 'uint8'
// NAME: error: no operator has a result 'z'
// PRECISION: error: unknown precision 'int7'{{.*}}; use one of uint8, int8, int8x4, int16, int16x8, float
// CONFIG: error: cannot read the configuration: {{.*}}quant-assign-params-invalid.mlir
