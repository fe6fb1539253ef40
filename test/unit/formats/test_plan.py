"""plan.json: what is written reads back, and nothing else is accepted."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.errors import PackageError
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep, parse_plan

PLAN = Plan(
    "model.circle",
    (0,),
    (5,),
    (HostStep((0,)), SegmentStep("segment-0.npu", (1,), (3, 4), (1, 2)), HostStep((3, 4))),
    target="npu-256",
    memory="flash",
    compiler_version="1.2.3",
    options={"prefer": "performance", "sram_limit_bytes": None},
    host_reasons={0: "the type float32 is not supported – see “rules”", 3: "no"},
)


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PLAN.to_json())
    return document


def test_round_trip() -> None:
    assert parse_plan(PLAN.to_json()) == PLAN
    assert [step.name for step in PLAN.segments] == ["segment-0"]


def test_states_of_segments_are_kept() -> None:
    step = SegmentStep("segment-0.npu", (1, 7), (3, 4), (1, 2), ((1, 0),))
    plan = Plan("model.circle", (0,), (5,), (step,))
    assert parse_plan(plan.to_json()) == plan
    assert step.passed == ((1,), (4,))


def test_text_does_not_depend_on_order() -> None:
    other = Plan(**{name: getattr(PLAN, name) for name in reversed(Plan.__slots__)})
    shuffled = {3: PLAN.host_reasons[3], 0: PLAN.host_reasons[0]}
    object.__setattr__(other, "host_reasons", shuffled)
    assert other.to_json() == PLAN.to_json()


def test_only_five_keys_are_needed() -> None:
    text = '{"schema_version": 1, "model": "m.circle", "inputs": [], "outputs": [], "steps": []}'
    assert parse_plan(text.encode()) == Plan("m.circle", (), (), ())


def _with(path: str, value: Any) -> bytes:
    """The plan with the value at ``a.b.0`` replaced; the last part may be a new key."""
    document = _document()
    place: Any = document
    *parts, last = path.split(".")
    for part in parts:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[int(last) if isinstance(place, list) else last] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("schema_version", 2, "schema version 2 is newer than 1, .* compile the model again"),
        ("schema_version", 0, "schema_version is 0, expected 1"),
        ("schema_version", True, "schema_version is True"),
        ("schema_version", "1", "schema_version is '1'"),
        ("more", 1, "unknown key 'more'"),
        ("model", "../m.circle", "model is '../m.circle', which is not a path in the package"),
        ("model", "a//b", "not a path in the package"),
        ("model", "/a", "not a path in the package"),
        ("model", "", "not a path in the package"),
        ("model", 3, "model must be a string, not a number"),
        ("inputs", {}, "inputs must be a list, not an object"),
        ("inputs.0", -1, r"inputs\[0\] is -1, expected an index"),
        ("inputs.0", 2**31, r"inputs\[0\] is 2147483648, expected an index"),
        ("inputs.0", 1.0, r"inputs\[0\] is 1.0, expected an index"),
        ("inputs.0", True, r"inputs\[0\] is True, expected an index"),
        ("steps.0", [], r"steps\[0\].kind is None, expected 'host' or 'segment'"),
        ("steps.0.kind", "dsp", r"steps\[0\].kind is 'dsp'"),
        ("steps.0.subgraph", 1, "only the first subgraph can be planned"),
        ("steps.0.operators", [], r"steps\[0\].operators must name at least one operator"),
        ("steps.0.operators", [1, 1], "none twice"),
        ("steps.0.inputs", [], r"unknown key 'steps\[0\].inputs'"),
        ("steps.1.file", "segment-0", "expected a name with an extension"),
        ("steps.1.file", "segment-0.Npu", "expected a name with an extension"),
        ("steps.1.file", "/segment-0.npu", "not a plain file name"),
        ("steps.2", _document()["steps"][1], "two segment steps name the same file"),
        ("target", 5, "target must be a string"),
        ("options.prefer", [], "options.prefer must be a string, an integer or null, not a list"),
        ("options", [], "options must be an object"),
        ("host_reasons.-1", "no", "host_reasons has the key '-1', expected an operator index"),
        ("host_reasons.01", "no", "has the key '01'"),
        ("host_reasons.0", None, "host_reasons.0 must be a string, not null"),
        ("host_reasons.0", "\ud800", "a lone surrogate"),
    ],
)
def test_rejections(path: str, value: Any, text: str) -> None:
    with pytest.raises(PackageError, match=text) as raised:
        parse_plan(_with(path, value), "p/plan.json")
    assert raised.value.location == "p/plan.json"


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800"])
def test_records_of_partitioning_are_json(value: object) -> None:
    document = _document()
    document["partition"] = {"plans": [value]}
    with pytest.raises(PackageError, match="partition holds what JSON cannot express"):
        parse_plan(json.dumps(document).encode())


@pytest.mark.parametrize("key", ["schema_version", "model", "inputs", "outputs", "steps"])
def test_missing_keys(key: str) -> None:
    document = _document()
    del document[key]
    with pytest.raises(PackageError, match=f"missing key '{key}'"):
        parse_plan(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[]", "the plan must be an object, not a list"),
        (b'{"model": 1, "model": 2}', "the key 'model' is given twice"),
        (b'{"schema_version": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_malformed_text(data: bytes, text: str) -> None:
    with pytest.raises(PackageError, match=text):
        parse_plan(data)


def _parses_or_is_refused(data: bytes) -> None:
    try:
        plan = parse_plan(data)
    except PackageError:
        return
    assert parse_plan(plan.to_json()) == plan


def test_every_truncation() -> None:
    data = PLAN.to_json()
    for length in range(len(data)):
        _parses_or_is_refused(data[:length])


@given(st.data())
def test_flipped_and_replaced_bytes(data: st.DataObject) -> None:
    text = bytearray(PLAN.to_json())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(text) - 1))
        text[position] = data.draw(st.integers(0, 255))
    _parses_or_is_refused(bytes(text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(_document())), JSON)
def test_any_value_under_any_key(key: str, value: Any) -> None:
    _parses_or_is_refused(_with(key, value))
