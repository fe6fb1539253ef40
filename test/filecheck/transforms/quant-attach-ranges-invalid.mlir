// RUN: not odc-opt %s -p "quant-attach-ranges{records=\"nowhere.sqlite\"}" 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not odc-opt %s -p "quant-attach-ranges{records=\"%S/Inputs/quant-attach-ranges-invalid.json\"}" 2>&1 | filecheck %s --check-prefix=RANGE
// RUN: not odc-opt %s -p "quant-attach-ranges{records=\"%s\"}" 2>&1 | filecheck %s --check-prefix=NO-RECORDS

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
// MISSING: there is no record file 'nowhere.sqlite'{{.*}}; record the model first
// RANGE: the range of 'x' is [2.0, 1.0], must be [min, max] (in {{.*}}quant-attach-ranges-invalid.json
// NO-RECORDS: quant-attach-ranges-invalid.mlir
