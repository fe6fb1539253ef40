// RUN: odc-opt %s --print-diagnostics --split-input-file | filecheck %s

// The line is that of this file, not of the piece.
func.func @unknown(%x: tensor<2xf32>) {
  // CHECK: unknown option swish, allowed: activation, pot_scale_int16, version, {{.*}}syntax-invalid.mlir:6:28)
  %0 = circle.add(%x, %x) {swish = relu} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
}

// -----

func.func @twice(%x: tensor<2xf32>) {
  // CHECK: option activation is given twice
  %0 = circle.add(%x, %x) {activation = relu, activation = relu6} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
}

// -----

func.func @word(%x: tensor<2xf32>) {
  // CHECK: expected one of 'none', 'relu', 'relu6', 'relu_n1_to_1', 'sign_bit', 'tanh' (in {{.*}}syntax-invalid.mlir:20:41)
  %0 = circle.add(%x, %x) {activation = swish} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
}

// -----

// CHECK: operation circle.no_such is not registered
%0 = circle.no_such() : () -> tensor<2xf32>

// -----

// CHECK: lists are flat: write the numbers in row-major order, without inner brackets
%0 = circle.const [[1.0, 2.0], [3.0, 4.0]] : tensor<2x2xf32>

// -----

// CHECK: lists are flat
%0 = circle.const [1.0, [2.0]] : tensor<2xf32>

// -----

// CHECK: a value is out of range for int8: [300]
%0 = circle.const [300] : tensor<1xi8>

// -----

// CHECK: 0.5 is not a value of int32
%0 = circle.const [0.5] : tensor<1xi32>

// -----

// CHECK: 1 is not a value of bool
%0 = circle.const [1] : tensor<1xi1>

// -----

// CHECK: a list cannot hold string, allowed: bool, int8, {{.*}}; use #circle.blob
%0 = circle.const [1] : tensor<1x!circle.string>

// -----

// CHECK: expected a list of numbers or a #circle.blob, found "five"
%0 = circle.const "five" : tensor<1xi8>

// -----

// CHECK: a blob's inline bytes are not hexadecimal
%0 = circle.const #circle.blob<"0xzz"> : tensor<1xi8>

// -----

// CHECK: expected 0x and hexadecimal bytes, or sha256_ and a digest of 64 lower-case digits
%0 = circle.const #circle.blob<abc, 4> : tensor<4xi8>

// -----

// CHECK: unexpected low, allowed once each: scale, zero_point, axis, min, max, details
"test.op"() {a = #circle.qparams<low = 1>} : () -> ()

// -----

"test.op"() {a = #circle.blob<sha256_331cd6525087d01e9392f083ed28e9eced384206b5dbe43bff94ad1fcec2f25d, 72>} : () -> ()
// CHECK: constant {{[0-9a-f]+}} of 72 bytes is damaged: found 2 bytes with digest
{-# dialect_resources: { circle: { sha256_331cd6525087d01e9392f083ed28e9eced384206b5dbe43bff94ad1fcec2f25d: "0x100000000102" } } #-}

// -----

"test.op"() {a = #circle.blob<sha256_331cd6525087d01e9392f083ed28e9eced384206b5dbe43bff94ad1fcec2f25d, 72>} : () -> ()
// CHECK: a resource is not hexadecimal
{-# dialect_resources: { circle: { sha256_331cd6525087d01e9392f083ed28e9eced384206b5dbe43bff94ad1fcec2f25d: "0xq" } } #-}

// -----

// CHECK: 0x100000000 is hexadecimal; such digits are the 32 bits of a real number
%0 = circle.const [0x100000000] : tensor<1xf32>

// -----

// CHECK: hexadecimal digits are the 32 bits of a real number
"test.op"() {a = dense<[1.0, 0x100000000]> : tensor<2xf32>} : () -> ()

// -----

// CHECK: expected a decimal number as scale, not hexadecimal digits
"test.op"() {a = tensor<1x!quant.uniform<i8:f32, 0x3F000000>>} : () -> ()

// -----

// CHECK: expected a decimal number, not hexadecimal digits
"test.op"() {a = #circle.qparams<scale = [0x3F000000]>} : () -> ()
