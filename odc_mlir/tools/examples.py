"""Examples at the head of every ``--help``: command lines of each command, most useful first."""

from __future__ import annotations

EXAMPLES = """
odc-mlir net_int8.tflite
odc-mlir net.circle --calibration samples.npz -o out
odc-mlir samples digits
odc-mlir completion bash
odc-build flow.toml
odc-build onecc.cfg --dry-run
odc-circle operators net.circle --code CONV_2D
odc-circle extract net.circle --operators 1,3-5 -o part.circle
odc-circle operators net.circle --json operators.json
odc-circle tensors net.circle -o constants.npz
odc-circle tensors net.circle --name 'conv*' -o constants.h5
odc-circle resize net.circle --shapes [1,224,224,3] -o small.circle
odc-circle resize net.tflite --shapes [4,16],[4] -o batch.tflite
odc-circle extract net.circle --inputs relu1 --outputs relu4 -o part.circle
odc-circle partition net.circle --part-file net.part -o parts
odc-circle implant net.circle --parameter-file codes.json -o q8.circle
odc-circle requantize net.circle --to uint8 -o u8.circle
odc-circle join prefill.circle decode.circle -o llm.circle
odc-circle store-weights llm.circle --as int4x32 -o llm4.circle
odc-circle store-weights llm.circle --as ggml_q4_0 -o llm4.circle
odc-circle fake-quantize q8.circle -o float.circle
odc-compile net_int8.tflite -o out/package --report-html out/report.html
odc-compile net.circle --quantize int8 --calibration samples.npz -o out/package
odc-diff net.circle out/package
odc-diff net.tflite --with litert --load samples.npz
odc-doctor
odc-doctor --prune
odc-dump net.circle
odc-dump out/package --json out/package.json
odc-explore net.circle --vary array.macs_per_cycle=128,256,512 -o out/page.html
odc-explore net.circle --vary memory=flash,sram --csv out/points.csv
odc-lint net.circle --target npu-256
odc-lint net.tflite --json findings.json
odc-opt net.circle --stage npu --constants elide
odc-opt net.circle -p circle-simplify -t circle -o small.circle
odc-optimize net.circle -o small.circle --verify
odc-optimize net.circle --fuse-gelu --fuse-lstm -o fused.circle
odc-package inspect out/package
odc-package pack net.circle -o net.zip
odc-package inspect out/package --json contents.json
odc-package pack prefill.circle decode.circle --config settings.cfg -o llm
odc-package unpack net.zip net
odc-package verify out/package
odc-package check out/package
odc-package check out/package --target npu-256
odc-package firmware out/package -o out/firmware
odc-package firmware out/package -o out/m4 --triple thumbv7em-none-eabi --cpu cortex-m4
odc-package rollback out/package
odc-plugin list
odc-plugin check npu-gen
odc-plugin rules npu-256
odc-plugin check npu-gen --json checks.json
odc-quantize net.circle --calibration samples.npz -o q8.circle
odc-quantize net.tflite --calibration images --scheme int16 -o q16.tflite --report-html report.html
odc-reduce net.circle --check 'odc-compile -q {} -o p.zip' -o small.circle
odc-reduce net.circle --check ./fails.sh --match overflow -o small.circle
odc-report out/report.json --top 10
odc-report before.json after.json -o compared.html
odc-run net.tflite --load samples.npz --dump results.npz
odc-run out/package --num-runs 10 --profile times.json
odc-sim out/package/odc/1/segment-0.npu --stats stats.json
odc-sim segment-0.npu --load inputs.npz --dump outputs.npz --trace trace.json
"""


def examples_of(program: str) -> list[str]:
    """Return the two best examples of a command. Examples of siblings complete the examples of a subcommand."""
    lines, command = EXAMPLES.split("\n"), program.partition(" ")[0]
    own, others = ([line for line in lines if f"{line} ".startswith(f"{name} ")] for name in (program, command))
    return list(dict.fromkeys((*own, *others)))[:2]
