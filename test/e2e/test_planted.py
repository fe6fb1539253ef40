"""Translation validation: wrong constants, instructions, addresses and zero points of every stage are noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects import test
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

import odc_mlir
from helpers.data import REPOSITORY
from helpers.operator_cases import module_of
from odc_mlir import pipelines
from odc_mlir.dialects.circle import BlobAttr
from odc_mlir.dialects.circle_types import tensor_facts, tensor_type
from odc_mlir.dialects.native_attributes import ARENA_BYTES
from odc_mlir.dialects.npu_isa import BufferOp, InstructionOp
from odc_mlir.errors import CompileError, ForeignPassError, ModelError, TranslationError
from odc_mlir.ops.spec import QuantParams
from odc_mlir.support.locations import op_name
from odc_mlir.tools import odc_compile, odc_opt

DIGITS = str(REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle")
NATIVE = {stage.name for stage in pipelines.NATIVE_STAGES}


def find(module: ModuleOp, *names: str, which: int = 0) -> Operation:
    return [op for op in module.walk() if op.name in names][which]


def another(blob: BlobAttr) -> BlobAttr:
    """Return the blob with one bit of its first byte inverted, the one of the highest value."""
    data = bytearray(blob.bytes)
    data[0] ^= 0x40
    return BlobAttr.of(data)


def wrong_constant(module: ModuleOp) -> None:
    """Invert a bit of the first large constant."""
    for op in module.walk():
        for held in (op.properties, op.attributes):
            for name, value in held.items():
                if isinstance(value, BlobAttr) and len(value.bytes) > 100 and not isinstance(op, FuncOp):
                    held[name] = another(value)
                    return
    raise AssertionError("there is no constant")


def bypass(op: Operation) -> None:
    op.results[0].replace_all_uses_with(op.operands[0])
    Rewriter.erase_op(op)


def erased_operator(module: ModuleOp) -> None:
    """Let readers of a pooled tensor read what was pooled."""
    bypass(find(module, "circle.max_pool_2d", "npu.pool"))


def erased_instruction(module: ModuleOp) -> None:
    names = ("npu.isa.conv", "func.call", "llvm.call")
    Rewriter.erase_op([op for op in module.walk() if op.name in names and not op.results][-1])


def moved_buffer(module: ModuleOp) -> None:
    """Move the first buffer of an arena that has an address."""
    for op in module.walk():
        if isinstance(op, BufferOp) and op.address is not None and op.takes is not None:
            op.properties["address"] = IntegerAttr(op.address.value.data + 32, op.address.type)
            return
    raise AssertionError("there is no buffer")


def moved_view(module: ModuleOp) -> None:
    """Move a buffer of an arena into another one."""
    names = ("memref.view", "llvm.getelementptr")
    views = [op for op in module.walk() if op.name in names and op.operands[0].name_hint == "arena"]
    views[2].operands[1] = views[1].operands[1]


def retyped_input(module: ModuleOp) -> None:
    """Let the codes of the model's input mean other reals."""
    function = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
    set_zero(function.args[0], 3)
    function.update_function_type()


def retyped_boundary(module: ModuleOp) -> None:
    """Let the codes of a segment's body mean other reals than the ones outside."""
    segment = find(module, "odc.segment")
    set_zero(segment.regions[0].block.args[0], 3)


def set_zero(value: SSAValue, zero: int) -> None:
    facts = tensor_facts(value.type)
    assert facts.quant is not None
    changed = tensor_type(facts.dtype, facts.shape, QuantParams(facts.quant.scales, (zero,)))
    Rewriter.replace_value_with_new_type(value, changed)


def wrong_zero(module: ModuleOp) -> None:
    """Change a zero point that an operation or an instruction holds."""
    conv = find(module, "npu.conv", "npu.isa.conv")
    if not isinstance(conv, InstructionOp):
        conv.properties["in_zero"] = IntegerAttr(-120, conv.properties["in_zero"].type)  # type: ignore[attr-defined]
        return
    conv.in_zero = -120  # type: ignore[attr-defined]


def wrong_padding(module: ModuleOp) -> None:
    """Change the zero point of the first layer, -128, which native code stores without its sign."""
    for op in module.walk():
        value = op.properties.get("value")
        if isinstance(value, IntegerAttr) and value.type == i32 and value.value.data == 0:
            op.properties["value"] = IntegerAttr(5, i32)
            return
    raise AssertionError("there is no such number")


Plant = Callable[[ModuleOp], None]
OF_MODELS: tuple[Plant, ...] = (wrong_constant, erased_operator, retyped_input)
OF_INSTRUCTIONS: tuple[Plant, ...] = (wrong_constant, erased_instruction, moved_buffer, wrong_zero)
OF_BUFFERS: tuple[Plant, ...] = (wrong_constant, erased_instruction, moved_view, wrong_padding)
PLANTS: dict[str, tuple[Plant, ...]] = {
    "circle": OF_MODELS,
    "circle-opt": OF_MODELS,
    "quant": OF_MODELS,
    "partition": (wrong_constant, erased_operator, retyped_boundary),
    "npu": (wrong_constant, erased_operator, wrong_zero),
    "npu-sched": (wrong_constant, erased_instruction, wrong_zero),
    "npu-alloc": OF_INSTRUCTIONS,
    "package": OF_INSTRUCTIONS,
    "native-partition": OF_MODELS,
    "native": (wrong_constant, erased_instruction, wrong_padding),
    "native-alloc": (wrong_padding, moved_view),
    "native-divide": (wrong_constant, moved_view),
    "native-loops": (erased_instruction, moved_view),
    "native-llvm": OF_BUFFERS,
}
CASES = [(stage, plant) for stage, plants in PLANTS.items() for plant in plants]


@dataclass(frozen=True)
class Planting(ModulePass):
    """A pass with a defect."""

    name = "planting"
    plant: Plant

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.plant(op)


@pytest.mark.parametrize("target", ["npu-256", "cpu"])
def test_what_is_right_passes(target: str) -> None:
    expected = odc_mlir.compile(DIGITS, target=target)
    assert odc_mlir.compile(DIGITS, target=target, verify="run").files == expected.files


@pytest.mark.parametrize("stage", ["npu-sched", "package"])
def test_the_commands_notice_edited_text(stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "edited.mlir"
    assert odc_opt.main([DIGITS, "--stage", stage, "--verify-each=run", "-o", str(text)]) == 0
    assert odc_compile.main([str(text), "--verify-each=run", "-q", "-o", str(tmp_path / "good")]) == 0
    text.write_text(text.read_text().replace("in_zero -128", "in_zero -127", 1))
    for command, arguments in ((odc_opt, []), (odc_compile, ["-o", f"{tmp_path}/bad"])):
        assert command.main([str(text), "--verify-each=run", *arguments]) == 1
        assert "means something else: segment @segment_0 gives other values of 'probs" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()
    assert odc_compile.main([str(text), "--verify-each", "-q", "-o", str(tmp_path / "unseen")]) == 0


def wrong_weight(module: ModuleOp, random: np.random.Generator) -> None:
    """Invert a bit of a weight, one of the upper four."""
    layers = [op for op in module.walk() if op.name == "npu.conv"]
    layer = layers[random.integers(len(layers))]
    blob = layer.properties["weights"]
    assert isinstance(blob, BlobAttr)
    data = bytearray(blob.bytes)
    data[random.integers(len(data))] ^= 1 << random.integers(4, 8)
    layer.properties["weights"] = BlobAttr.of(bytes(data))


def test_wrong_bits_of_weights_are_noticed() -> None:
    """Even if a saturated softmax hides them, but not in channels that are always zero."""
    random, noticed = np.random.default_rng(1), 0
    for _ in range(40):
        module = lowered("npu", "npu-256").clone()
        wrong_weight(module, random)
        try:
            odc_mlir.run_passes(module, "", verify="run")
        except TranslationError:
            noticed += 1
    assert noticed >= 36


def test_a_wrong_bit_that_outputs_do_not_show_is_noticed_before_tensors_become_instructions() -> None:
    before = {"npu-choose-tiles": [Planting(lambda module: wrong_weight(module, np.random.default_rng(8)))]}
    with pytest.raises(TranslationError, match=r"^the IR after npu-sched .* values of 'conv3' in \d+ of 512 elements"):
        odc_mlir.compile(DIGITS, before=before, verify="run")


def test_a_wrong_clamp_is_noticed() -> None:
    noticed = 0
    for layer, limit in [(0, 60), (0, 80), (1, 0), (1, 40), (2, 20), (2, 40), (3, 0), (3, 40)]:
        module = lowered("npu", "npu-256").clone()
        find(module, "npu.conv", which=layer).properties["act_max"] = IntegerAttr(limit, i32)
        try:
            odc_mlir.run_passes(module, "", verify="run")
        except TranslationError:
            noticed += 1
    assert noticed >= 7


def test_a_circle_body_that_a_pass_changes_after_partitioning_is_noticed() -> None:
    """Native code is made of the body, so both would agree."""
    before = {"convert-circle-to-kernels": [Planting(wrong_constant)]}
    with pytest.raises(TranslationError, match=r"^the IR after native means something else"):
        odc_mlir.compile(DIGITS, target="cpu", before=before, verify="run")


def left_over(module: ModuleOp) -> None:
    """Add an operation that no stage lowers."""
    conv = find(module, "npu.conv")
    Rewriter.insert_op(test.TestOp.create(result_types=[i32]), InsertPoint.before(conv))


def test_a_pass_that_breaks_a_segment_ends_compiling() -> None:
    """Instead of moving operators to the host."""
    with pytest.raises(CompileError, match=r"test.op is of another level .*; insert a pass that lowers it"):
        odc_mlir.compile(DIGITS, before={"npu-elide-reshapes": [Planting(left_over)]})


def test_addresses_of_machine_code_are_inside_the_arena() -> None:
    module = lowered("native-llvm", "cpu").clone()
    inner = next(op for op in module.body.block.ops if ARENA_BYTES in op.attributes)
    inner.attributes[ARENA_BYTES] = IntegerAttr(1792, 64)
    with pytest.raises(CompileError, match=r"llvm.getelementptr is at byte 1856 of 1792 .*; take 0 to 1792, or change"):
        odc_mlir.run_passes(module, "", verify="run")


def test_of_operations_with_the_name_of_a_tensor_the_last_gives_it() -> None:
    """PRELU becomes the sum of two terms."""
    module = odc_mlir.lower(module_of("prelu-by-channels"), "npu", placement={"strategy": "supported"})
    names = [(op_name(op), op.results[0].type) for op in module.walk() if op.name in ("npu.scale", "npu.elementwise")]
    assert len(names) > len(set(names))
    odc_mlir.run_passes(module, "", verify="run")


def test_a_difference_of_codes_is_in_codes() -> None:
    before = {"circle-simplify": [Planting(PLANTS["circle-opt"][0])]}
    with pytest.raises(TranslationError, match=r"outputs differ by up to \d+ codes? \("):
        odc_mlir.lower(odc_mlir.load(DIGITS), "circle-opt", before=before, verify="run")


def test_every_stage_has_plants() -> None:
    assert tuple(PLANTS) == pipelines.stage_names()


@cache
def lowered(stage: str, target: str) -> ModuleOp:
    return odc_mlir.lower(odc_mlir.load(DIGITS), stage, target=target)


@pytest.mark.parametrize(("stage", "plant"), CASES, ids=[f"{stage}-{plant.__name__}" for stage, plant in CASES])
def test_what_is_planted_is_noticed(stage: str, plant: Plant) -> None:
    target = "cpu" if stage in NATIVE else "npu-256"
    if stage in ("circle", "circle-opt", "quant", "partition", "native-partition"):
        *_, last = (known.passes[-1] for known in pipelines.stages_until(stage))
        before = {last: [Planting(plant)]}
        with pytest.raises((TranslationError, ForeignPassError)) as caught:
            odc_mlir.lower(odc_mlir.load(DIGITS), stage, target=target, before=before, verify="run")
        assert caught.value.stage == stage
    else:
        module = lowered(stage, target).clone()
        plant(module)
        with pytest.raises((TranslationError, ModelError, CompileError)):
            odc_mlir.run_passes(module, "", verify="run")
