// RUN: odc-opt %s | filecheck %s
// RUN: odc-opt %s --print-op-generic | odc-opt | filecheck %s
// RUN: odc-opt %s -t circle | odc-opt | filecheck %s --check-prefix=FILE

// What !quant.uniform cannot express is an encoding; a long one stands at the top of the file.
// CHECK: #qparams0 = #circle.qparams<min = [-1.0, -2.0, -3.0, -4.0], max = [0.1, 0.2, 0.3, 0.4], details = "MXQuantization" {axis = -1 : i32}>
// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<2xi64, #circle.qparams<scale = [0.5], zero_point = [3]>>
// CHECK-SAME: tensor<2xf32, #circle.qparams<min = [-1.0], max = [inf]>>
// CHECK-SAME: tensor<2xi8, #circle.qparams<scale = [0.0, 0.5], zero_point = [0, 1]>>
// CHECK-SAME: tensor<4xf32, #qparams0>
// CHECK-SAME: tensor<2x!quant.uniform<i8:f32, 0.5>, #circle.qparams<min = [-1.0], max = [1.0]>>
// FILE: func.func @main
// FILE-SAME: tensor<2xi64, #circle.qparams<scale = [0.5], zero_point = [3]>>
// FILE-SAME: tensor<2xf32, #circle.qparams<min = [-1.0], max = [inf]>>
// FILE-SAME: tensor<4xf32, #qparams0>
func.func @main(%wide: tensor<2xi64, #circle.qparams<scale = [0.5], zero_point = [3]>>,
                %recorded: tensor<2xf32, #circle.qparams<min = [-1.0], max = [inf]>>,
                %zero: tensor<2xi8, #circle.qparams<scale = [0.0, 0.5], zero_point = [0, 1]>>,
                %block: tensor<4xf32, #circle.qparams<min = [-1.0, -2.0, -3.0, -4.0], max = [0.1, 0.2, 0.3, 0.4], details = "MXQuantization" {axis = -1 : i32}>>,
                %both: tensor<2x!quant.uniform<i8:f32, 0.5>, #circle.qparams<min = [-1.0], max = [1.0]>>) {
  func.return
}
