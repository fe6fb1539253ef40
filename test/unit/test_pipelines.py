"""Stages: the order of passes, pipelines in text, options, verification after every pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.transforms import get_all_passes
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import PassFailedException

from odc_mlir import pipelines, transforms
from odc_mlir.errors import CompileError, ModelError, OptionError
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.partition.odc_set_target import OdcSetTargetPass
from odc_mlir.universe import VERIFY_VARIABLE, make_context

# Passes that somebody asks for by name.
ASKED_FOR = (
    "circle-equalize-channels",
    "circle-optimize",
    "npu-unroll-loops",
    "quant-normalize-inputs",
    "quant-split-columns",
    "quant-normalize-outputs",
)

RELU = """
func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.relu(%x) : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>
  func.return %0 : tensor<4x!quant.uniform<i8:f32, 0.5>>
}"""


def module() -> ModuleOp:
    return parse_module(make_context(), RELU)


def test_every_pass_of_every_stage_exists_under_its_name() -> None:
    for stage in (*pipelines.STAGES, *pipelines.NATIVE_STAGES):
        for spec in stage.specs:
            assert pipelines.build_pass(spec).name == spec.name


def test_every_pass_of_ours_is_in_one_stage_or_serves_quantising() -> None:
    for way in (pipelines.STAGES, pipelines.NATIVE_STAGES):
        used = [name for stage in way for name in stage.passes if name in transforms.NAMES]
        assert len(used) == len(set(used))
    stages = (*pipelines.STAGES, *pipelines.NATIVE_STAGES)
    used = [name for stage in stages for name in stage.passes]
    others = {name for name in transforms.NAMES if name not in used}
    assert all("quant" in name or name in (*pipelines.QUANTIZE_PREPARE, *ASKED_FOR) for name in others)


def test_passes_before_quantising_exist_under_their_names() -> None:
    for name in pipelines.QUANTIZE_PREPARE:
        assert pipelines.find_pass(name).name == name


def test_names_do_not_clash_with_xdsl() -> None:
    """A stock xdsl-opt loads both lists."""
    assert not set(transforms.NAMES) & set(get_all_passes())


def test_stage_names_in_order() -> None:
    expected = ("circle", "circle-opt", "quant", "partition", "npu", "npu-sched", "npu-alloc", "package")
    native = ("native-partition", "native", "native-alloc", "native-divide", "native-loops", "native-llvm")
    assert pipelines.stage_names() == (*expected, *native)


def test_native_stages_leave_the_way_to_the_npu_after_quant() -> None:
    names = [stage.name for stage in pipelines.stages_until("native")]
    assert names == ["circle", "circle-opt", "quant", "native-partition", "native"]
    with pytest.raises(OptionError, match="stage 'native' does not follow 'npu'"):
        pipelines.stages_until("native", after="npu")


def test_a_stage_includes_those_before_it() -> None:
    assert [stage.name for stage in pipelines.stages_until("partition")] == [
        "circle",
        "circle-opt",
        "quant",
        "partition",
    ]
    assert [stage.name for stage in pipelines.stages_until("npu", after="quant")] == ["partition", "npu"]


@pytest.mark.parametrize("arguments", [("lower",), ("npu", "lower")])
def test_an_unknown_stage_lists_the_known_ones(arguments: tuple[str, ...]) -> None:
    with pytest.raises(
        OptionError, match=r"unknown stage 'lower'; use one of circle, circle-opt, .*, package, native-partition, .*"
    ):
        pipelines.stages_until(*arguments)


def test_stages_expand_inside_a_pipeline() -> None:
    names = [item.name for _, item in pipelines.passes_of("cse,circle,circle-fold-constants{limit-bytes=4}")]
    assert names == ["cse", "circle-infer-shapes", "circle-fold-constants"]


@pytest.mark.parametrize("text", ["a{", "a,,b", "{}"])
def test_text_that_is_no_pipeline(text: str) -> None:
    with pytest.raises(OptionError, match="cannot read the pipeline"):
        pipelines.passes_of(text)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ArgSpec("npu-polish", {}), "unknown pass 'npu-polish'"),
        (ArgSpec("circle-fold-constants", {"limit_bytes": ("many",)}), "pass 'circle-fold-constants': incompatible"),
        (ArgSpec("circle-fold-constants", {"limit": (1,)}), "pass 'circle-fold-constants': provided arguments"),
    ],
)
def test_a_wrong_pass_or_option_is_a_user_error(spec: ArgSpec, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        pipelines.build_pass(spec)


def test_configured_passes_stand_in_for_the_default_ones() -> None:
    text = module()
    pipelines.run(make_context(), text, "partition", options=[OdcSetTargetPass(target="npu-128", memory="sram")])
    assert 'odc.target<"npu-128", memory = sram' in str(text)


def test_each_pass_runs_in_a_context_of_its_own() -> None:
    seen: list[tuple[str | None, str]] = []

    @contextmanager
    def around(stage: str | None, item: ModulePass) -> Iterator[None]:
        yield
        seen.append((stage, item.name))

    pipelines.run_passes(make_context(), module(), pipelines.passes_until("partition"), around=around)
    stages = pipelines.stages_until("partition")
    assert seen == [(stage.name, name.partition("{")[0]) for stage in stages for name in stage.passes]


@dataclass(frozen=True)
class Breaking(ModulePass):
    """Leaves a result type that its operator does not have."""

    name = "breaking"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = next(iter(op.body.block.ops))
        relu = next(iter(function.regions[0].block.ops))
        relu.detach()


@dataclass(frozen=True)
class Failing(ModulePass):
    """Gives up."""

    name = "failing"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise PassFailedException("Nothing to do here.")


@dataclass(frozen=True)
class Noting(ModulePass):
    """Notes that it ran."""

    seen: list[str]
    name = "noting"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.seen.append(self.name)


@pytest.mark.parametrize(("variable", "option"), [("1", False), ("", True)])
def test_a_broken_pass_is_found_at_once(variable: str, option: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the variable asks for it, as in these tests, or the option does."""
    monkeypatch.setenv(VERIFY_VARIABLE, variable)
    seen: list[str] = []
    with pytest.raises(ModelError) as caught:
        pipelines.run_passes(
            make_context(verify_each=option),
            module(),
            [("npu", Breaking()), ("npu", Noting(seen)), ("x", Noting(seen))],
        )
    assert (caught.value.stage, seen) == ("npu", [])


def test_a_broken_pass_is_found_at_the_end_of_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VERIFY_VARIABLE)
    seen: list[str] = []
    with pytest.raises(ModelError) as caught:
        pipelines.run_passes(
            make_context(), module(), [("npu", Breaking()), ("npu", Noting(seen)), ("x", Noting(seen))]
        )
    assert (caught.value.stage, seen) == ("npu", ["noting"])


@pytest.mark.parametrize("stage", sorted(pipelines.CHECKED_ON_REQUEST))
@pytest.mark.parametrize("asked", [False, True])
def test_stages_of_instructions_are_verified_on_request(
    stage: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VERIFY_VARIABLE)
    assert stage in pipelines.stage_names()
    with pytest.raises(ModelError) if asked else nullcontext():
        pipelines.run_passes(make_context(verify_each=asked), module(), [(stage, Breaking())])


def test_the_environment_asks_for_verification_after_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("1", "0"):
        monkeypatch.setenv(VERIFY_VARIABLE, value)
        assert make_context().verify_each == (value == "1")


def test_a_pass_that_fails_is_a_compile_error_of_its_stage() -> None:
    with pytest.raises(CompileError, match=r"nothing to do here\. \(stage npu\)"):
        pipelines.run_passes(make_context(), module(), [("npu", Failing())])
