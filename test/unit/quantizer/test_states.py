"""Models with state: pairs that are declared or found, frames of sequences, and verdicts by roll-out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from helpers.models import ModelBuilder
from helpers.streaming import MODELS, Array, Streaming, averager, elman, gru, lstm, rolled, sqnr_db
from odc_mlir.dialects.odc import states_of
from odc_mlir.errors import InputError, OptionError
from odc_mlir.formats.circle.model import Model, Signature
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.states import NAME, StatePair, encode
from odc_mlir.quantizer import states
from odc_mlir.quantizer.help import HELD_BACK, HelpSearch, _headrooms
from odc_mlir.quantizer.models import Recipe
from odc_mlir.quantizer.policy.options import make_options
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.quantizer.states import BY_VALUES, DECLARED, Rollout, found_pairs, like_states
from odc_mlir.quantizer.summary import figure
from odc_mlir.runtime.api import run
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.tools.odc_quantize import details

PLAIN: dict[str, Any] = {"help": False}


def graph_of(streaming: Streaming) -> Graph:
    return build_graph(read_model(streaming.model))


def declared(streaming: Streaming, **options: Any) -> Quantized:
    return quantize(streaming.model, calibration=streaming.samples(60, 1), states=streaming.states, **PLAIN, **options)


@pytest.mark.parametrize("name", ["gru", "elman", "averager"])
def test_a_verdict_is_as_good_as_the_model_in_use(name: str) -> None:
    streaming = MODELS[name]()
    made = quantize(streaming.model, calibration=streaming.samples(400, 1))
    unseen = [streaming.frames(400, seed) for seed in (100, 101)]
    models = (streaming.model, made.to_circle())
    expected, found = (np.stack([rolled(model, streaming, frames) for frames in unseen]) for model in models)
    assert made.verdict["passed"]
    assert abs(made.verdict["outputs"][0]["sqnr_db"] - sqnr_db(expected, found)) < 3.0


def test_a_limit_that_other_sequences_may_miss_leaves_the_model_unchecked() -> None:
    """The state of an averager goes farther in other sequences: 33 dB on this one, 21 dB on others."""
    streaming = averager(2)
    made = quantize(streaming.model, calibration=streaming.samples(400, 1), metric="sqnr", limit=25.0, **PLAIN)
    (check,) = made.verdict["limits"]
    assert (check["passed"], check["certain"], made.verdict["status"]) == (True, False, "unchecked")
    assert any("may miss its limit: give longer sequences" in text for text in made.verdict["findings"])
    low, high = made.verdict["intervals"]["sqnr_db"]
    told = f"over other sequences, the SQNR may be {low:.1f} to {high:.1f} dB; record more frames"
    assert told in unshown(made.verdict["samples"])


def test_a_verdict_over_single_steps_promises_more() -> None:
    streaming = averager()
    recorded = with_states(streaming, 100)
    alone, over = (quantize(streaming.model, calibration=recorded, states=states, **PLAIN) for states in ({}, None))
    gap = [made.verdict["outputs"][0]["sqnr_db"] for made in (alone, over)]
    assert gap[0] > gap[1] + 3.0


def test_samples_in_another_order_than_in_use_are_held_and_leave_the_model_unchecked() -> None:
    """Inputs without memory move the state of an averager little; those in use last."""
    streaming, rng = averager(), np.random.default_rng(3)
    shuffled = [[rng.normal(0.0, 0.3, (1, streaming.features)).astype(np.float32)] for _ in range(96)]
    made = quantize(streaming.model, calibration=shuffled)
    unseen = streaming.frames(400, 100)
    expected, found = (rolled(model, streaming, unseen) for model in (streaming.model, made.to_circle()))
    assert sqnr_db(expected, found) > 20.0
    assert (made.verdict["status"], made.passed, made.failed) == ("unchecked", False, False)
    assert "not checked as in use" in repr(made)
    assert any("inputs differ like shuffled ones" in text for text in made.verdict["findings"])
    assert "on 96 samples of 1 sequence, each repeated for 8 frames (" in figure(made.verdict)
    made.require_passed()
    for streaming, is_shuffled in ((elman(), False), (averager(), True)):  # TANH and what is new decide the state
        states = [np.zeros(shape, np.float32) for shape in streaming.shapes]
        roll = rollout(streaming)
        roll.through([[rng.normal(size=(1, streaming.features)).astype(np.float32), *states] for _ in range(40)])
        assert roll.are_shuffled is is_shuffled
    roll = rollout(averager())
    roll.through([[frame, *states] for (frame,) in shuffled], may_be_shuffled=False)
    assert not roll.are_shuffled


def with_states(streaming: Streaming, count: int, seed: int = 1) -> list[list[Array]]:
    """Frames with the float model's own states, as a recording has them."""
    states = [np.zeros(shape, np.float32) for shape in streaming.shapes]
    found = []
    for frame in streaming.frames(count, seed):
        found.append([frame, *states])
        states = run(streaming.model, [frame, *states], backend="host")[1:]
    return found


def rollout(streaming: Streaming, states: Any = None) -> Rollout:
    found = Rollout.of(states, (), read_model(streaming.model), graph_of(streaming))
    assert found is not None
    return found


def test_later_frames_have_the_states_of_the_model_itself() -> None:
    recorded = with_states(averager(), 5)
    ones = np.ones((1, 8), np.float32)
    given = [[frame, ones if place in (2, 4) else state] for place, (frame, state) in enumerate(recorded)]
    roll = rollout(averager())
    frames = roll.through(given)
    for own, other in zip(frames, recorded, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(own, other, strict=True))
    assert (roll.steps, roll.are_shuffled) == ([0, 1, 2, 3, 4], False)
    assert [id(sample) for sample in roll.with_given(frames)] == [*map(id, frames), id(given[2]), id(given[4])]
    given[1][1] = ones
    roll = rollout(averager())
    roll.through(given)
    assert "samples are no consecutive frames" in roll.doubts([{"first": 1, "sqnr_db": 30.0}], 30.0)


def test_sequences_start_where_states_are_zero_or_the_first_again_and_with_each_source() -> None:
    streaming, zero, first = averager(), np.zeros((1, 8), np.float32), np.ones((1, 8), np.float32)
    given = [*with_states(streaming, 3), *with_states(streaming, 2, seed=2)]
    other = [[frame, first * (1 if place in (0, 2) else place + 2)] for place, (frame, _) in enumerate(given)]
    sources = [[[frame, zero] for frame in streaming.frames(3, seed)] for seed in (1, 2)]
    for parts, steps in (([given], [0, 1, 2, 0, 1]), ([other], [0, 1, 0, 1, 2]), (sources, [0, 1, 2, 0, 1, 2])):
        roll = rollout(streaming)
        for part in parts:
            roll.through(part)
        assert roll.steps == steps


def test_samples_may_lack_states(tmp_path: Any) -> None:
    streaming = lstm()
    frames = streaming.frames(40, 1)
    np.savez(tmp_path / "frames.npz", in_0=np.concatenate(frames))
    zeros = [np.zeros((1, 10), np.float32)] * 2
    made = [
        quantize(streaming.model, calibration=source, **PLAIN)
        for source in (str(tmp_path / "frames.npz"), [[frame] for frame in frames], [[f, *zeros] for f in frames])
    ]
    assert len({item.to_circle() for item in made}) == 1
    assert made[0].verdict["states"]["sequences"] == 1


def test_the_initial_state_of_a_file_starts_sequences_and_stays() -> None:
    streaming = averager()
    initial = np.full((1, 8), 0.5, np.float32)
    model = read_model(streaming.model)
    model.buffers.append(memoryview(encode([StatePair("mean_out", "mean_in", initial.tobytes())])))
    model.metadata.append((NAME, len(model.buffers) - 1))
    made = quantize(bytes(write_model(model)), calibration=streaming.samples(40, 1), io="quantized", **PLAIN)
    (pair,) = states_of(made.model)
    codes = np.frombuffer(pair.initial or b"", np.int8)
    input = build_graph(read_model(made.to_circle())).input_infos()[1]
    assert input.quant is not None
    assert np.allclose((codes - input.quant.zero_point) * input.quant.scale, 0.5, atol=input.quant.scale)


def renamed(streaming: Streaming, **names: str) -> Model:
    model = read_model(streaming.model)
    for tensor in model.subgraphs[0].tensors:
        tensor.name = names.get(tensor.name, tensor.name)
    return model


@pytest.mark.parametrize(
    ("output", "input", "found"),
    [
        ("h_out", "h_in", True),
        ("new_h", "h", True),
        ("present.0.key", "past.0.key", True),
        ("present.1.key", "past.0.key", False),
        ("output", "input", False),
        ("add_3", "h", False),
    ],
)
def test_pairs_are_found_by_names(output: str, input: str, found: bool) -> None:
    model = renamed(elman(), h_out=output, h_in=input)
    assert found_pairs(model, build_graph(model)) == ((StatePair(output, input),) if found else ())


def test_pairs_are_found_by_the_names_of_a_signature_and_in_models_of_two_inputs_alone() -> None:
    model = renamed(elman(), h_out="PartitionedCall:1", h_in="serving_h:0")
    (x, h), (y, state) = model.subgraphs[0].inputs, model.subgraphs[0].outputs
    assert not found_pairs(model, build_graph(model))
    model.signatures.append(Signature("step", 0, {"x": x, "state": h}, {"y": y, "new_state": state}))
    assert found_pairs(model, build_graph(model)) == (StatePair("PartitionedCall:1", "serving_h:0"),)
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4))
    model = builder.finish([x], [builder.made("x_out", (1, 4), "TANH", x)])
    assert found_pairs(model, build_graph(model)) == ()


def test_other_names_make_pairs_where_samples_carry_the_values() -> None:
    streaming = elman()
    model = bytes(write_model(renamed(streaming, h_out="tanh", h_in="arg1")))
    made = quantize(model, calibration=with_states(streaming, 40), **PLAIN)
    assert (made.verdict["states"]["pairs"], made.verdict["states"]["known"]) == ({"tanh": "arg1"}, BY_VALUES)
    assert any("'tanh' is the next input 'arg1'" in text for text in made.verdict["findings"])
    assert not states_of(made.model)  # nobody declared them
    graph, rng = graph_of(elman()), np.random.default_rng(1)
    one, ten = (
        [[rng.normal(size=(1, 5)), scale * rng.normal(size=(1, 12))] for _ in range(9)] for scale in (1.0, 10.0)
    )
    results = [[rng.normal(size=(1, 4)), rng.normal(size=(1, 12))] for _ in range(9)]
    found = [len(like_states(graph, samples, results)) for samples in (one, ten)]
    assert found == [1, 0], "an output of another range is no next input"


@pytest.mark.parametrize(
    ("outputs", "sizes", "found"),
    [
        ({"y": 1, "a": 1, "b": 1}, {"x": 1, "h": 1, "c": 1}, {"x": "y", "h": "a", "c": "b"}),
        ({"y": 9, "a": 1, "b": 1}, {"h": 1, "c": 1}, {"h": "a", "c": "b"}),
        ({"a": 1, "y": 9}, {"x": 90, "h": 1}, {"h": "a"}),  # the range decides before the order
        ({"y": 9, "a": 9, "b": 1}, {"h": 1, "c": 1}, {"h": "a", "c": "b"}),  # two inputs like the same output
        ({"y": 9, "a": 9}, {"h": 1, "c": 1}, {}),
    ],
)
def test_like_states_pair_each_input_and_output_once(
    outputs: dict[str, int], sizes: dict[str, int], found: dict[str, str]
) -> None:
    builder = ModelBuilder()
    inputs = [builder.tensor(name, (1, 4)) for name in sizes]
    ends = [builder.made(name, (1, 4), "ADD", inputs[0], inputs[-1]) for name in outputs]
    graph, ramp = build_graph(builder.finish(inputs, ends)), np.linspace(-1.0, 1.0, 4).reshape(1, 4)
    pairs = like_states(
        graph, *([[scale * ramp for scale in found_sizes.values()]] for found_sizes in (sizes, outputs))
    )
    assert {pair.input: pair.output for pair in pairs} == found


def test_what_may_be_a_state_is_not_certain_until_somebody_says() -> None:
    streaming = elman()
    model = bytes(write_model(renamed(streaming, h_out="tanh", h_in="arg1")))
    zeros = [[frame, np.zeros((1, 12), np.float32)] for frame in streaming.frames(150, 1)]
    rng = np.random.default_rng(1)
    other = [[frame, rng.uniform(-0.9, 0.9, (1, 12)).astype(np.float32)] for frame, _ in zeros]
    for samples in (zeros, other):
        verdict = quantize(model, calibration=samples, **PLAIN).verdict
        assert any("declare it by --state tanh=arg1" in text for text in verdict["findings"])
        assert verdict["passed"]
        assert not verdict["certain"]
        assert "states" not in verdict
    assert quantize(model, calibration=other, states="none", **PLAIN).verdict["certain"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"states": {"h_out": "h_in"}, "output_types": {"h_out": "int8"}}, "one static type; output 'h_out' is int8"),
        ({"states": {"h_aut": "h_in"}}, "names no output of the model.*did you mean 'h_out'"),
        ({"states": {"h_out": "h"}}, "names no input of the model"),
        ({"states": {"y": "h_in"}}, "one static type"),
        ({"states": ["h_out"]}, "is not OUT=IN"),
        ({"states": ["h_out=h_in", "y=h_in"]}, "two states have the input 'h_in'"),
    ],
)
def test_pairs_that_cannot_be_are_errors(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        quantize(elman().model, calibration=elman().samples(8, 1), **options, **PLAIN)
    assert make_options(states=["a=b", "c=d"]).states == {"a": "b", "c": "d"}
    assert make_options(states=["none"]).states == make_options(states={}).states == {}
    assert make_options().states is None


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", [{}, {"scheme": "int16x8"}, {"overrides": True}])
def test_both_ends_have_one_scale_zero_point_and_type(name: str, options: dict[str, Any]) -> None:
    streaming = MODELS[name]()
    if options.get("overrides"):  # a wider end takes the other along
        options = {"overrides": {next(iter(streaming.states)): "int16x8"}}
    made = declared(streaming, io="quantized", **options)
    graph = build_graph(read_model(made.to_circle()))
    assert [str(pair) for pair in states_of(made.model)] == [f"{a}={b}" for a, b in streaming.states.items()]
    for output, input in zip(graph.output_infos()[1:], graph.input_infos()[1:], strict=True):
        assert (output.dtype, output.quant) == (input.dtype, input.quant)
        assert output.quant is not None
    if options:
        assert graph.input_infos()[1].dtype == "int16"


def test_errors_over_steps() -> None:
    verdict = declared(gru()).verdict
    steps = verdict["states"]["steps"]
    ends = [(step["first"], step["last"]) for step in steps]
    assert ends == [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 60)]
    assert sum(step["frames"] for step in steps) == 60
    (line,) = [line for line in details(verdict) if "over the frames of 1 sequence" in line]
    assert f"3 to 4: {steps[2]['sqnr_db']:.1f} dB" in line
    assert verdict["states"]["known"] == DECLARED
    assert "errors over steps" in declared(gru()).report_html()


def test_errors_that_still_grow_and_short_sequences_leave_doubt() -> None:
    roll = rollout(averager())
    vars(roll)["independent"] = 20
    roll.steps = list(range(20))
    steps: list[dict[str, Any]] = [{"first": 1, "sqnr_db": 40.0}, {"first": 9, "sqnr_db": 25.0}]
    assert "errors still grow after 9 frames" in roll.doubts(steps, 29.0)
    assert not roll.doubts(steps, 27.0)
    roll.steps = [0, 1, 2] * 5
    assert "no sequence has more than 3 frames" in roll.doubts(steps, 27.0)


def test_folds_are_blocks_of_consecutive_frames() -> None:
    roll = rollout(averager())
    frames = roll.through([[frame, np.zeros((1, 8), np.float32)] for frame in averager().frames(10, 1)])
    shuffled = frames[::2] + frames[1::2]
    vars(roll)["independent"] = 4
    assert roll.blocks(shuffled, range(10)) == [[0, 1, 5], [2, 6, 7], [3, 4, 8], [9]]
    order = roll.in_blocks(shuffled, 4)
    numbers = [
        [next(i for i, f in enumerate(frames) if f is shuffled[place]) for place in order[fold::4]] for fold in range(4)
    ]
    assert numbers == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def test_a_model_that_refuses_a_frame_goes_on_from_the_float_state(monkeypatch: pytest.MonkeyPatch) -> None:
    streaming = elman()
    roll = rollout(streaming)
    frames = roll.through([[frame, np.zeros((1, 12), np.float32)] for frame in streaming.frames(3, 1)])
    places = iter(range(3))

    class Refusing(HostExecutor):
        def run(self, *given: Any, **options: Any) -> Any:
            if next(places) == 1:
                raise InputError("refused")
            return super().run(*given, **options)

    expected = [run(streaming.model, frame, backend="host") for frame in frames]
    monkeypatch.setattr(states, "HostExecutor", Refusing)
    found = list(roll.run(graph_of(streaming), frames))
    assert found[1] is None
    for place in (0, 2):
        assert all(map(np.array_equal, found[place] or (), expected[place]))


@pytest.mark.parametrize("rolls", [False, True])
def test_few_frames_that_are_alike_presume_no_room_that_costs_much(rolls: bool) -> None:
    search = SimpleNamespace(
        options=SimpleNamespace(has_codes_to_spare=False),
        data=SimpleNamespace(independent=4, rollout=object() if rolls else None),
        evaluator=SimpleNamespace(is_large=False),
        best=SimpleNamespace(model=None, recipe=Recipe()),
    )
    changes = []
    for change in _headrooms(cast(HelpSearch, search)):
        changes.append(change)
        search.best = SimpleNamespace(model=None, recipe=change.recipe)  # accepted
    assert [change.is_presumed for change in changes] == [True, True]
    assert [change.most_lost_db for change in changes] == [0.5, 0.5 if rolls else 1.5]


@pytest.mark.parametrize(
    ("is_presumed", "lost_db", "clipped_db", "expected"),
    [
        (True, 0.5, 0.0, True),
        (True, 0.6, 0.0, False),
        (True, 0.6, 0.2, None),
        (False, 0.1, 0.5, False),
        (False, 0.0, 0.6, None),
        (False, -1.0, 0.0, None),
    ],
)
def test_known_samples_bound_the_gain_of_a_wider_range(
    is_presumed: bool, lost_db: float, clipped_db: float, expected: bool | None
) -> None:
    """Wider steps cost what known samples lose, and regain at most what unseen samples lose by clipping."""

    def of(db: float) -> SimpleNamespace:
        return SimpleNamespace(quality_db=db)

    search = SimpleNamespace(
        measured=lambda candidate: of(30.0 - lost_db * (candidate == "found")),
        evaluator=SimpleNamespace(
            measured_itself=lambda candidate: of(30.0), measured_unseen=lambda candidate: of(30.0 - clipped_db)
        ),
    )
    change = SimpleNamespace(is_presumed=is_presumed, most_lost_db=0.5)
    assert HelpSearch.foreseen(cast(Any, search), cast(Any, change), cast(Any, "found"), cast(Any, "best")) is expected


@pytest.mark.parametrize(("most_lost_db", "kept"), [(0.0, False), (0.5, False), (1.5, True)])
def test_the_tolerance_of_a_presumed_change_counts_on_held_back_samples(most_lost_db: float, kept: bool) -> None:
    def measured(candidate: str) -> SimpleNamespace:
        db = 29.0 if candidate == "found" else 30.0
        return SimpleNamespace(quality_db=db, better_than=lambda other, least: db - other.quality_db > least, lacking=0)

    search: Any = object.__new__(HelpSearch)
    search.measured, search.options = measured, SimpleNamespace(min_coverage=None)
    coverage = SimpleNamespace(share=lambda: 1.0, left=lambda unit: 0)
    search.evaluator = SimpleNamespace(coverage=lambda candidate: coverage)
    change: Any = SimpleNamespace(is_presumed=True, most_lost_db=most_lost_db)
    assert search.accepts(HELD_BACK, change, "found", "best") is kept
