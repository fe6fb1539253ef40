// RUN: odc-opt %s -p npu-sched,npu-alloc -t npu-listing | filecheck %s

// The program of a segment as assembly text: absolute addresses, semaphores, a halt.
builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash>} {
  npu.program @segment_0(%x: tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> {
    %y = npu.conv %x kernel [1, 1] weights <"0x01020304"> i8 zeros(0, 0, 0) clamp(-128, 127) bias <1, 2> multiplier <1073741824, 1073741824> exponent <0, 0> : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>> -> tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
    odc.yield %y : tensor<1x4x4x2x!quant.uniform<i8:f32, 0.5>>
  }
}
// CHECK: ; program segment_0
// CHECK: .metadata {"compiler": "
// CHECK: .constants 16
// CHECK-NEXT: .bytes
// CHECK-NEXT: copy target=arena:0x20 bytes=16 post=2
// CHECK-NEXT: load source=arena:0x0
// CHECK-NEXT: wload source=arena:0x20 coded_bytes=3 coding=rice bytes=4 wait=2
// CHECK-NEXT: param source=arena:0x23 count=2 form=bias post=18
// CHECK-NEXT: conv 
// CHECK-NEXT: store target=arena:0x0
// CHECK-NEXT: halt
