// RUN: odc-opt %s | filecheck %s
// RUN: odc-opt %s | odc-opt | filecheck %s
// RUN: odc-opt %s --print-op-generic | odc-opt | filecheck %s
// RUN: odc-opt %s --constants elide | filecheck %s --check-prefix=ELIDE

// Few numbers are a list, whichever way they were written.
// CHECK-LABEL: func.func @lists
func.func @lists() {
  // CHECK: circle.const [1, -2] : tensor<2xi32>
  %0 = circle.const [1, -2] : tensor<2xi32>
  // CHECK: circle.const [1, -2] : tensor<1x2xi32>
  %1 = circle.const #circle.blob<"0x01000000feffffff"> : tensor<1x2xi32>
  // CHECK: circle.const [200] : tensor<ui8>
  %2 = circle.const [200] : tensor<ui8>
  // CHECK: circle.const [true, false] : tensor<2xi1>
  %3 = circle.const [true, false] : tensor<2xi1>
  // CHECK: circle.const [0.1, -0.0, 1.0e-05] : tensor<3xf32>
  %4 = circle.const [0.1, -0.0, 1.0e-05] : tensor<3xf32>
  // CHECK: circle.const [3] : tensor<1x!quant.uniform<i8:f32, 0.5>>
  %5 = circle.const [3] : tensor<1x!quant.uniform<i8:f32, 0.5>>
  // Hexadecimal digits are the bits of a real number, and the value of an integer.
  // CHECK: circle.const [1.0, -2.0] : tensor<2xf32>
  %hex = circle.const [0x3F800000, 0xC0000000] : tensor<2xf32>
  // CHECK: circle.const [1.0] : tensor<f64>
  %wide = circle.const [0x3FF0000000000000] : tensor<f64>
  // CHECK: circle.const [16, -1] : tensor<2xi32>
  %codes = circle.const [0x10, -1] : tensor<2xi32>
  // CHECK: circle.const [] : tensor<0x3xf32>
  %6 = circle.const [] : tensor<0x3xf32>
  // CHECK: circle.const [0.1] : tensor<f64>
  %7 = circle.const [0.1] : tensor<f64>
  func.return
}

// What a list cannot say exactly, or not in few numbers, stays bytes: NaN, text, four-bit and sparse elements.
// CHECK-LABEL: func.func @bytes
func.func @bytes() {
  // CHECK: circle.const #circle.blob<"0x0000c07f"> : tensor<1xf32>
  %0 = circle.const #circle.blob<"0x0000c07f"> : tensor<1xf32>
  // CHECK: circle.const #circle.blob<"0x010000000c0000000d00000061"> : tensor<1x!circle.string>
  %1 = circle.const #circle.blob<"0x010000000c0000000d00000061"> : tensor<1x!circle.string>
  // CHECK: circle.const #circle.blob<"0x2103"> : tensor<3xi4>
  %2 = circle.const #circle.blob<"0x2103"> : tensor<3xi4>
  // CHECK: circle.const #circle.blob<"0x02"> sparse {block_map = array<i32>} : tensor<4xi8>
  %3 = circle.const #circle.blob<"0x02"> sparse {block_map = array<i32>} : tensor<4xi8>
  func.return
}

// More than 64 bytes are named by digest; the file ends with them unless they are left out.
// CHECK-LABEL: func.func @resource
func.func @resource() {
  // CHECK: circle.const #circle.blob<sha256_[[DIGEST:[0-9a-f]+]], 72> : tensor<72xi8>
  // ELIDE: circle.const #circle.blob<sha256_331cd6525087d01e9392f083ed28e9eced384206b5dbe43bff94ad1fcec2f25d, 72> : tensor<72xi8>
  %0 = circle.const #circle.blob<sha256_331cd6525087d01e9392f083ed28e9eced384206b5dbe43bff94ad1fcec2f25d, 72> : tensor<72xi8>
  func.return
}

// CHECK: dialect_resources: {
// CHECK-NEXT: circle: {
// CHECK-NEXT: sha256_[[DIGEST]]: "0x10000000abababab
// ELIDE-NOT: dialect_resources

{-#
  dialect_resources: {
    circle: {
      sha256_331cd6525087d01e9392f083ed28e9eced384206b5dbe43bff94ad1fcec2f25d: "0x10000000abababababababababababababababababababababababababababababababababababababababababababababababababababababababababababababababababababababababab"
    }
  }
#-}
