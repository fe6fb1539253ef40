// RUN: odc-opt %s --split-input-file --print-diagnostics | filecheck %s

// CHECK: unknown storage type i64, allowed: i4, i8, i16, i32, u4, u8, u16, u32
"test.op"() {t = !quant.uniform<i64:f32, 0.5>} : () -> ()

// -----

// CHECK: expected 'f32' as expressed type
"test.op"() {t = !quant.uniform<i8:f16, 0.5>} : () -> ()

// -----

// CHECK: code range [-129, 127] does not fit int8 [-128, 127]
"test.op"() {t = !quant.uniform<i8<-129:127>:f32, 0.5>} : () -> ()

// -----

// CHECK: scale is -0.5, must be a positive finite float32 number
"test.op"() {t = !quant.uniform<i8:f32, -0.5>} : () -> ()

// -----

// CHECK: scale is inf, must be a positive finite float32 number
"test.op"() {t = !quant.uniform<i8:f32, 1.0e40>} : () -> ()

// -----

// CHECK: zero point 200 is outside the code range [-128, 127]
"test.op"() {t = !quant.uniform<i8:f32, 0.5:200>} : () -> ()

// -----

// CHECK: zero point -1 is outside the code range [0, 15]
"test.op"() {t = !quant.uniform<u8<0:15>:f32, 0.5:-1>} : () -> ()

// -----

// CHECK: 0 scales but 0 zero points
"test.op"() {t = !quant.uniform<i8:f32:0, {}>} : () -> ()

// -----

// CHECK: 2 scales but 1 zero points
"test.op"() {t = #circle.qparams<scale = [0.5, 1.0], zero_point = [1]>} : () -> ()

// -----

// CHECK: 1 minima but 2 maxima
"test.op"() {t = #circle.qparams<min = [0.5], max = [0.5, 1.0]>} : () -> ()

// -----

// CHECK: quantised dimension is -1, must not be negative
"test.op"() {t = #circle.qparams<scale = [0.5], axis = -1>} : () -> ()
