"""Generation of text: the tokens of a step, its interface, and the errors of both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.language import CONTEXT, VOCABULARY, language_model, likeliest, logits_of, single_models
from helpers.models import ModelBuilder, add_model, model_bytes
from odc_mlir.errors import InputError, OdcError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.runtime import Session
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.session.generation import Cache, find_interface
from odc_mlir.tools import odc_circle, odc_compile, odc_package

DECODE = {"decode": 1}
PROMPT = [1, 5, 9, 4]


@pytest.mark.parametrize(
    "sizes", [DECODE, {"prefill": 3}, {"decode": 1, "prefill": 3}, {"prefill": 3, "decode": 1}], ids=" ".join
)
@pytest.mark.parametrize("length", range(1, 6))
def test_tokens_are_those_of_the_whole_text(sizes: dict[str, int], length: int) -> None:
    prompt, seen = [1, 5, 9, 4, 7][:length], list[int]()
    count = CONTEXT + 1 - length
    with Session(model_bytes(language_model(sizes))) as session:
        made = session.generate(prompt, count, on_token=seen.append)
        assert made == seen == likeliest(prompt, count)
        assert session.generate(prompt, 2) == made[:2]  # a text of its own


def test_a_prompt_is_read_in_long_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(model_bytes(language_model({"decode": 1, "prefill": 3}))) as session:
        runs, infer = [], session.infer
        monkeypatch.setattr(session, "infer", lambda arrays: (runs.append(int(arrays[1][0])), infer(arrays))[1])
        session.generate([1, 2, 3, 4, 5, 6, 7], 2)
    assert runs == [6, 7]  # positions of single tokens


def test_state_inside_a_package_begins_anew() -> None:
    data = model_bytes(language_model(DECODE))
    package = odc_mlir.compile(data, states={"new_k": "past_k", "new_v": "past_v"})
    with Session(package) as session:
        assert session.input_size() == 3
        for _ in range(2):
            assert session.generate(PROMPT, 4) == likeliest(PROMPT, 4)


def test_models_join_as_signatures_with_one_set_of_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, model in single_models().items():
        Path(f"{name}.circle").write_bytes(model_bytes(model))
    assert odc_circle.main(["join", "decode.circle", "prefill.circle", "-o", "both.circle"]) == 0
    assert capsys.readouterr().out.endswith("bytes with the signatures decode, prefill\n")
    joint, once = read_model("both.circle"), language_model({"decode": 1, "prefill": 3})
    assert sorted(map(bytes, joint.buffers)) == sorted(map(bytes, once.buffers))
    with Session("both.circle") as session:
        assert session.generate(PROMPT, 5) == likeliest(PROMPT, 5)
        session.set_signature_run("prefill")
        assert session.generate(PROMPT, 5) == likeliest(PROMPT, 5)
    assert odc_circle.main(["join", "both.circle", "./both.circle", "-o", "twice.circle"]) == 1
    assert "two models have the same name" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["table", "cache", "comparison"])
def test_a_position_bounds_the_context_without_mask_and_caches(kind: str) -> None:
    """``kind``: what the position chooses from. A wrapped position may name the last rows by negative numbers."""
    builder = ModelBuilder()
    token, position = builder.tensor("tok", (1,), "int32"), builder.tensor("pos", (1,), "int32")
    rows = builder.constant("rows", np.ones((6, 4), np.float32))
    less = builder.made("less", (1,), "LESS", position, builder.constant("zero", [0], "int32"), dtype="bool")
    wrapped = builder.made("plus", (1,), "ADD", position, builder.constant("six", [6], "int32"), dtype="int32")
    place = builder.made("place", (1,), "SELECT_V2", less, wrapped, position, dtype="int32")
    x = builder.made("x", (1, 4), "GATHER", builder.constant("e", np.ones((9, 4), np.float32)), token)
    if kind == "table":
        y = builder.made("y", (1, 4), "ADD", x, builder.made("p", (1, 4), "GATHER", rows, place))
    elif kind == "cache":
        zero = builder.constant("first", [0], "int32")
        start = builder.made("start", (2,), "CONCATENATION", place, zero, dtype="int32", axis=0)
        y = builder.made("y", (6, 4), "DYNAMIC_UPDATE_SLICE", rows, x, start)
    else:
        numbers = builder.constant("numbers", np.arange(6)[:, None], "int32")
        same = builder.made("same", (6, 1), "EQUAL", numbers, place, dtype="bool")
        y = builder.made("y", (6, 4), "SELECT_V2", same, x, rows)
    with Session(builder.file([token, position], [y])) as session:
        assert len(session.generate([1], 6)) == 6
        with pytest.raises(InputError, match=r"context is full.*the model holds 6"):
            session.generate([1], 7)


@pytest.mark.parametrize("stop", ["ab", 5, ["a"]])
def test_stops_are_tokens(stop: Any) -> None:
    with Session(model_bytes(language_model(DECODE))) as session, pytest.raises(OptionError, match="stop is"):
        session.generate(PROMPT, 1, stop=stop)


def test_a_stop_is_the_last_token() -> None:
    first, second = likeliest(PROMPT, 2)
    with Session(model_bytes(language_model(DECODE))) as session:
        assert session.generate(PROMPT, 4, stop=[second]) == ([first, second] if first != second else [first])


def test_draws_follow_seed_temperature_and_top_k() -> None:
    best = np.argsort(-logits_of(PROMPT))
    with Session(model_bytes(language_model(DECODE))) as session:
        drawn = [session.generate(PROMPT, 1, 1.0, 3, seed)[0] for seed in range(40)]
        assert drawn == [session.generate(PROMPT, 1, 1.0, 3, seed)[0] for seed in range(40)]
        assert set(drawn) == set(best[:3].tolist())
        chances = np.exp(logits_of(PROMPT)[best[:3]])
        assert abs(drawn.count(best[0]) / 40 - chances[0] / chances.sum()) < 0.2
        assert session.generate(PROMPT, 4, 2.0, 1, 7) == likeliest(PROMPT, 4)
        assert {session.generate(PROMPT, 1, 1e-3, None, seed)[0] for seed in range(5)} == {best[0]}


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (([1, VOCABULARY], 1), InputError, f"token 1 of the prompt is {VOCABULARY}, out of range.*0 to 19"),
        (([-1], 1), InputError, "token 0 of the prompt is -1, out of range"),
        (([1.5], 1), InputError, "token 0 of the prompt is 1.5, not an integer"),
        (([], 1), InputError, "the prompt has no tokens"),
        (([1, 2], 8), InputError, "the context is full: a prompt of 2 tokens and 8 more need 9.*at most 7 tokens"),
        (([1] * 9, 1), InputError, "the context is full.*shorten the prompt to 8 tokens"),
        (([1], 0), OptionError, "max_tokens is 0"),
        (([1], 1, -1.0), OptionError, "the temperature is -1.0"),
        (([1], 1, 1.0, 0), OptionError, "top_k is 0"),
        (([1], 1, 1.0, None, -1), OptionError, "the seed is -1"),
        (([1], 1, 0.0, None, 0, 5), OptionError, "on_token is 5"),
    ],
)
def test_wrong_requests_are_refused(arguments: tuple[Any, ...], kind: type[OdcError], message: str) -> None:
    with Session(model_bytes(language_model(DECODE))) as session:
        with pytest.raises(kind, match=message):
            session.generate(*arguments)
        assert session.generate([1], 1) == likeliest([1], 1)


def test_models_without_tokens_are_refused() -> None:
    with Session(model_bytes(add_model())) as session, pytest.raises(InputError, match="no token input"):
        session.generate([1], 1)


def tensors(**shapes: tuple[int, ...]) -> list[TensorInfo]:
    """Tensors by name; single letters in front of a _ give the type: i for int32, else float32."""
    return [TensorInfo(name, "int32" if name.startswith("i_") else "float32", shape) for name, shape in shapes.items()]


CACHE = tensors(logits=(1, 9), new=(1, 2, 1, 4))


@pytest.mark.parametrize(
    ("inputs", "given", "found"),
    [
        ({"i_a": (1, 1), "i_b": (1,), "c": (1, 8), "d": (1, 2, 7, 4)}, {}, (0, 1, 2)),
        ({"i_pos": (1,), "i_x": (1, 1), "d": (1, 2, 7, 4)}, {}, (1, 0, None)),
        ({"d": (1, 2, 7, 4), "i_position_ids": (1,), "i_input_ids": (1, 1)}, {}, (2, 1, None)),
        ({"i_attention_mask": (1, 8), "i_a": (1, 1), "d": (1, 2, 7, 4)}, {}, (1, None, 0)),
        ({"i_a": (1, 1), "i_b": (1,), "d": (1, 2, 7, 4)}, {"token": "i_b", "position": 0, "logits": 0}, (1, 0, None)),
    ],
)
def test_interfaces_are_found(inputs: dict[str, Any], given: Mapping[str, Any], found: tuple[int | None, ...]) -> None:
    face = find_interface(tensors(**inputs), CACHE, given)
    assert (face.token, face.position, face.mask, face.logits) == (*found, 0)
    assert face.caches == (Cache(list(inputs).index("d"), 1, 2),)
    assert (face.tokens, face.context, face.vocabulary) == (1, 8, 9)


@pytest.mark.parametrize(
    ("inputs", "given", "message"),
    [
        ({"i_a": (1, 1), "c": (1, 8), "d": (3, 3)}, {}, "neither token, position, mask nor cache"),
        ({"i_a": (1, 1), "c": (1, 8), "d": (1, 2, 1, 4)}, {}, "nor cache of rows.*declare it as a state"),
        ({"i_a": (1, 1), "c": (1, 9), "d": (1, 2, 7, 4)}, {}, "room for 9 tokens, another for 8"),
        ({"i_a": (1, 3), "c": (1, 1, 2, 8)}, {}, "does not fit 3 tokens"),
        ({"i_a": (1, 3), "c": ()}, {}, "does not fit 3 tokens"),
        ({"i_a": (1, 1)}, {"token": "x"}, "the token is 'x', which the model lacks; it has i_a"),
        ({"i_a": (1, 1)}, {"tokens": 0}, "a step has no 'tokens'"),
    ],
)
def test_other_models_have_no_interface(inputs: dict[str, Any], given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(OdcError, match=message):
        find_interface(tensors(**inputs), CACHE, given)


def test_an_interface_is_plain_data() -> None:
    graph = build_graph(language_model({"prefill": 3}))
    infos = graph.input_infos(), graph.output_infos()
    assert find_interface(*infos).to_dict(*infos) == {
        "token": "tok",
        "position": "pos",
        "mask": "mask",
        "logits": "logits",
        "caches": [{"rows": "past_k", "new_rows": "new_k"}, {"rows": "past_v", "new_rows": "new_v"}],
        "tokens": 3,
        "context": CONTEXT,
        "vocabulary": VOCABULARY,
    }


def test_signatures_that_stay_as_they_are_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = model_bytes(language_model({"decode": 1, "prefill": 3}))
    Path("both.circle").write_bytes(data)
    quantised = odc_mlir.quantize(data, scheme="int8_wo")
    assert quantised.verdict["findings"][0].startswith("the signature 'prefill' stays float: quantise its model")
    for target in ("npu-256", "cpu"):
        assert odc_compile.main(["both.circle", "--target", target, "-o", "p", "--overwrite"]) == 0
        assert "host: the signature 'prefill': only the first is compiled" in capsys.readouterr().out
        assert odc_compile.main(["both.circle", "--target", target, "-o", "q", "--strict"]) == 1
    assert "(function: @prefill is not the main function)" in capsys.readouterr().err
    assert odc_mlir.compile(data, target="cpu").report["host_signatures"] == ["prefill"]
    assert odc_package.main(["inspect", "p"]) == 0
    assert re.search(r"signatures:\n  decode: \S*x86\S*\n  prefill: host\n", capsys.readouterr().out)


def test_caches_of_new_rows_are_quantised_as_states() -> None:
    random, hidden = np.random.default_rng(0), np.full((1, 1, 1, CONTEXT), -1e4, np.float32)
    samples = []
    for at in range(3 * CONTEXT):
        position, mask = at % CONTEXT, hidden.copy()
        mask[..., CONTEXT - 1 - position :] = 0
        numbers = [np.array([[random.integers(VOCABULARY)]], np.int64), np.array([position], np.int64)]
        samples.append([*numbers, mask, *np.zeros((2, 1, 1, CONTEXT - 1, 4), np.float32)])
    states = {"new_k": "past_k", "new_v": "past_v"}
    made = odc_mlir.quantize(
        model_bytes(language_model(DECODE)), calibration=samples, states=states, io="quantized", help=False
    )
    with Session(odc_mlir.compile(made.model)) as session:
        assert session.input_size() == 3
        assert session.generate(PROMPT, 4) == likeliest(PROMPT, 4)
