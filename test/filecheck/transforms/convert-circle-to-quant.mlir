// RUN: odc-opt %s --split-input-file --convert-circle-to-quant | filecheck %s
// RUN: odc-opt %s --split-input-file --convert-circle-to-quant='io=quantized' | filecheck %s --check-prefix CODES

// Values and weights get their types; the bias takes the scale of input times weights, for each channel.
func.func @main(%x: tensor<?x2xf32, #circle.qparams<min = [-1.0], max = [1.0]>>) -> tensor<?x2xf32>
    attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5>]} {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32>
  %b = circle.const [1.0, -1.0] : tensor<2xf32>
  %0 = circle.fully_connected(%x, %w, %b) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 0.125:3>]
  } : (tensor<?x2xf32, #circle.qparams<min = [-1.0], max = [1.0]>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %0 : tensor<?x2xf32>
}
// CHECK: func.func @main(%{{.*}}: tensor<?x2xf32>) -> tensor<?x2xf32> {
// CHECK: %[[X:.*]] = builtin.unrealized_conversion_cast %{{.*}} : tensor<?x2xf32> to tensor<?x2x!quant.uniform<i8:f32, 0.5>>
// CHECK: %[[W:.*]] = circle.const [8, -4, 1, 8] : tensor<2x2x!quant.uniform<i8:f32:0, {0.25, 0.5}>>
// CHECK: %[[B:.*]] = circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>>
// CHECK: %[[Y:.*]] = circle.fully_connected(%[[X]], %[[W]], %[[B]]) : {{.*}} -> tensor<?x2x!quant.uniform<i8:f32, 0.125:3>>
// CHECK: builtin.unrealized_conversion_cast %[[Y]] : {{.*}} to tensor<?x2xf32>
// CODES: func.func @main(%[[X:[a-z0-9_]*]]: tensor<?x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<?x2x!quant.uniform<i8:f32, 0.125:3>> {
// CODES: circle.fully_connected(%[[X]],

// -----

// 16-bit activations: a bias of 64 bits, whose type is written beside.
func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> attributes {quant.arguments = [!quant.uniform<i16:f32, 0.5>]} {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32>
  %b = circle.const [1.0, -1.0] : tensor<2xf32>
  %0 = circle.fully_connected(%x, %w, %b) attributes {
    quant.operands = [!quant.uniform<i16:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i16:f32, 0.125>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  func.return %0 : tensor<1x2xf32>
}
// CHECK: circle.const [8, -4] : tensor<2xi64, #circle.qparams<scale = [0.125, 0.25], zero_point = [0, 0]>>

// -----

// Programs of PyTorch round sums once. A bias compensates for rounding twice if it is not a whole number of steps, no
// result is below the zero point, and the result has a given type.
builtin.module attributes {circle.metadata = [{name = "odc.source_lines", data = #circle.blob<"0x7b7d">}], quant.given = {
  positive = !quant.uniform<i8:f32, 24.0:-128>, clamped = !quant.uniform<i8:f32, 24.0:3>, signed = !quant.uniform<i8:f32, 24.0:3>, fine = !quant.uniform<i8:f32, 0.125:-128>, whole = !quant.uniform<i8:f32, 24.0:-128>
}} {
func.func @main(%x: tensor<1x2xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>)
    attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5>]} {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32>
  %b_positive = circle.const [1.03, -1.04] : tensor<2xf32> loc("b_positive")
  %positive = circle.fully_connected(%x, %w, %b_positive) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 24.0:-128>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("positive")
  %b_clamped = circle.const [1.03, -1.04] : tensor<2xf32> loc("b_clamped")
  %clamped = circle.fully_connected(%x, %w, %b_clamped) {activation = relu} attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 24.0:3>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("clamped")
  %b_signed = circle.const [1.03, -1.04] : tensor<2xf32> loc("b_signed")
  %signed = circle.fully_connected(%x, %w, %b_signed) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 24.0:3>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("signed")
  %b_chosen = circle.const [1.03, -1.04] : tensor<2xf32> loc("b_chosen")
  %chosen = circle.fully_connected(%x, %w, %b_chosen) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 24.0:-128>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("chosen")
  %b_fine = circle.const [1.03, -1.04] : tensor<2xf32> loc("b_fine")
  %fine = circle.fully_connected(%x, %w, %b_fine) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 0.125:-128>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("fine")
  %b_whole = circle.const [1.0, -1.0] : tensor<2xf32> loc("b_whole")
  %whole = circle.fully_connected(%x, %w, %b_whole) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 24.0:-128>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("whole")
  func.return %positive, %clamped, %signed, %chosen, %fine, %whole : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>
}
}
// CHECK: circle.const [7, -5] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>> loc("b_positive")
// CHECK: circle.const [7, -5] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>> loc("b_clamped")
// CHECK: circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>> loc("b_signed")
// CHECK: circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>> loc("b_chosen")
// CHECK: circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>> loc("b_fine")
// CHECK: circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>> loc("b_whole")

// -----

// Other models keep their bias.
builtin.module attributes {quant.given = {positive = !quant.uniform<i8:f32, 24.0:-128>}} {
func.func @main(%x: tensor<1x2xf32>) -> (tensor<1x2xf32>)
    attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5>]} {
  %w = circle.const [2.0, -1.0, 0.5, 4.0] : tensor<2x2xf32>
  %b_positive = circle.const [1.03, -1.04] : tensor<2xf32> loc("b_positive")
  %positive = circle.fully_connected(%x, %w, %b_positive) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32:0, {0.25, 0.5}>, unit],
    quant.results = [!quant.uniform<i8:f32, 24.0:-128>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("positive")
  func.return %positive : tensor<1x2xf32>
}
}
// CHECK: circle.const [8, -4] : tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.25}>> loc("b_positive")

// -----

// A value is cast once for each type that it is wanted in, and only then.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5>]} {
  %0 = circle.relu(%x) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>], quant.results = [!quant.uniform<i8:f32, 0.5>]
  } : (tensor<4xf32>) -> tensor<4xf32>
  %1 = circle.add(%0, %0) attributes {
    quant.operands = [!quant.uniform<i16:f32, 0.25>, !quant.uniform<i16:f32, 0.25>], quant.results = [!quant.uniform<i16:f32, 1.0>]
  } : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = circle.exp(%0) attributes {quant.operands = [f32], quant.results = [f32]} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = circle.relu(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = circle.add(%2, %3) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %5 = circle.add(%1, %4) attributes {quant.operands = [f32, f32], quant.results = [f32]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %5 : tensor<4xf32>
}
// CHECK: %[[A:.*]] = circle.relu(
// CHECK-NEXT: %[[WIDE:.*]] = builtin.unrealized_conversion_cast %[[A]] : {{.*}} to tensor<4x!quant.uniform<i16:f32, 0.25>>
// CHECK-NEXT: %[[REAL:.*]] = builtin.unrealized_conversion_cast %[[A]] : {{.*}} to tensor<4xf32>
// CHECK-NEXT: %[[SUM:.*]] = circle.add(%[[WIDE]], %[[WIDE]])
// CHECK-NEXT: %[[BACK:.*]] = builtin.unrealized_conversion_cast %[[SUM]]
// CHECK-NEXT: circle.exp(%[[REAL]]) : (tensor<4xf32>)
// CHECK-NEXT: circle.relu(%[[REAL]]) : (tensor<4xf32>)
// CHECK: circle.add(%[[BACK]],

// -----

// A constant that two operators want in different types becomes two; one that an operator leaves real stays.
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> attributes {quant.arguments = [!quant.uniform<i8:f32, 0.5>]} {
  %c = circle.const [1.0, 2.0] : tensor<2xf32> loc("c")
  %0 = circle.add(%x, %c) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32, 0.125>], quant.results = [!quant.uniform<i8:f32, 0.5>]
  } : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = circle.mul(%0, %c) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32, 0.125>], quant.results = [!quant.uniform<i8:f32, 0.5>]
  } : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %2 = circle.sub(%1, %c) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.5>, !quant.uniform<i8:f32, 0.25>], quant.results = [!quant.uniform<i8:f32, 0.5>]
  } : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %3 = circle.div(%2, %c) attributes {quant.operands = [f32, f32], quant.results = [f32]} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %3 : tensor<2xf32>
}
// CHECK: %[[FIRST:.*]] = circle.const [8, 16] : tensor<2x!quant.uniform<i8:f32, 0.125>> loc("c_quantized")
// CHECK: %[[REAL:.*]] = circle.const [1.0, 2.0] : tensor<2xf32> loc("c")
// CHECK: circle.add(%{{.*}}, %[[FIRST]])
// CHECK: circle.mul(%{{.*}}, %[[FIRST]])
// CHECK: %[[OTHER:.*]] = circle.const [4, 8] : tensor<2x!quant.uniform<i8:f32, 0.25>> loc("c_int8")
// CHECK: circle.sub(%{{.*}}, %[[OTHER]])
// CHECK: circle.div(%{{.*}}, %[[REAL]])

// -----

// CAST repeats the element type of what it takes.
func.func @main(%x: tensor<2xf32>) -> tensor<2xi32> attributes {quant.arguments = [!quant.uniform<i8:f32, 1.0>]} {
  %0 = circle.cast(%x) {in_data_type = float32, out_data_type = int32} attributes {
    quant.operands = [!quant.uniform<i8:f32, 1.0>], quant.results = [unit]
  } : (tensor<2xf32>) -> tensor<2xi32>
  func.return %0 : tensor<2xi32>
}
// CHECK: circle.cast({{.*}}) {in_data_type = int8, out_data_type = int32} : (tensor<2x!quant.uniform<i8:f32, 1.0>>) -> tensor<2xi32>

// -----

// Functions without an assignment are left alone, recorded ranges included.
func.func @main(%x: tensor<2xf32, #circle.qparams<min = [-1.0], max = [1.0]>>) -> tensor<2xf32> {
  %0 = circle.relu(%x) : (tensor<2xf32, #circle.qparams<min = [-1.0], max = [1.0]>>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
// CHECK: circle.relu(%{{.*}}) : (tensor<2xf32, #circle.qparams<min = [-1.0], max = [1.0]>>) -> tensor<2xf32>
// CHECK-NOT: quant.io
