from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder, Samples, add_model
from odc_mlir.calibration.copies import distinct, stratified, without
from odc_mlir.errors import InputError, OdcError, OptionError
from odc_mlir.formats.calibration import Pictures
from odc_mlir.quantizer.samples import LoadOptions, make_data, split
from odc_mlir.runtime.execution.graph import build_graph

GRAPH = build_graph(add_model())  # two inputs [1, 4]


def _samples(count: int) -> Samples:
    return [[np.full((1, 4), i, np.float32), np.zeros((1, 4), np.float32)] for i in range(count)]


def _numbers(samples: Samples) -> list[int]:
    return [int(sample[0][0, 0]) for sample in samples]


@pytest.mark.parametrize(("count", "held"), [(8, 4), (40, 16), (200, 50), (1000, 64)])
def test_a_quarter_is_held_back_and_more_of_few(count: int, held: int) -> None:
    data = split(_samples(count), np.arange(count))
    assert (len(data.fit), len(data.held), data.separate) == (count - held, held, False)
    kept = _numbers(data.held)
    assert data.labels.tolist() == kept
    assert not set(_numbers(data.fit)) & set(kept)
    assert max(kept) - min(kept) >= count // 2, "from all over the data"
    if count >= 40:  # kinds that take turns are on both sides
        for period in (2, 3, 4, 6):
            assert all(len({number % period for number in _numbers(part)}) == period for part in (data.fit, data.held))
    few = split(_samples(7))
    assert (len(few.fit), len(few.held), few.separate) == (7, 7, True)
    assert few.findings == ["all 7 samples were used both to choose ranges and to check the model"]


def test_left_out_samples_take_their_labels_along() -> None:
    data = split(_samples(12), np.arange(12))
    told = data.without([data.held[0], data.fit[2]])
    assert (len(told.fit), len(told.held), told.left_out) == (len(data.fit) - 1, len(data.held) - 1, 2)
    for samples, labels in ((told.fit, told.fit_labels), (told.held, told.labels)):
        assert labels.tolist() == _numbers(samples)
    assert _numbers(told.held) == _numbers(data.held[1:])
    assert data.without([]) is data
    assert data.without(data.held) is data, "nothing would be left to check the model on"


@pytest.mark.parametrize(
    ("calibration", "evaluation", "fit", "held", "separate"),
    [
        (range(3, 23), range(3), 20, [0, 1, 2], True),  # all are new
        (range(20), range(15, 30), 20, [*range(20, 30)], True),  # some are new
        (range(20), range(4), 16, [*range(4)], False),  # all are seen, and enough others are left
        (range(20), range(2, 20), 10, [2 + place for place in stratified(10, 18)], False),  # too few are
        (range(8), range(8), 4, stratified(4, 8), False),  # none are
        (range(5), range(5), 5, [*range(5)], True),  # too few to hold any back
        (range(5), range(1), 4, [0], False),
    ],
)
def test_samples_to_check_on_that_choose_as_well(
    calibration: range, evaluation: range, fit: int, held: list[int], separate: bool
) -> None:
    every = _samples(30)
    given = [[every[i] for i in part] for part in (calibration, evaluation)]
    data = make_data(GRAPH, *given, np.array(evaluation) * 10)
    assert (len(data.fit), data.separate, _numbers(data.held)) == (fit, separate, held)
    assert data.labels.tolist() == [10 * number for number in held]
    assert len(data.findings) == bool(set(calibration) & set(evaluation))
    if len(data.held) < len(data.fit):
        assert not set(_numbers(data.fit)) & set(held)


def test_a_sample_counts_once() -> None:
    repeated = [*_samples(2) * 6, *_samples(10)]
    data = make_data(GRAPH, repeated)
    assert (len(data.fit), len(data.held)) == (5, 5)
    assert data.findings == ["12 of 22 samples repeat others, and count once"]
    labels = [*range(2)] * 6 + [*range(10)]
    assert len(make_data(GRAPH, repeated, labels=labels).fit) == 5
    labels[0] = 9  # one of the two labels of that sample is wrong
    assert len(make_data(GRAPH, repeated, labels=labels).fit) == 6
    twice = make_data(GRAPH, _samples(20) + _samples(3), labels=[*range(20), 0, 7, 8])
    assert twice.findings == [
        "1 of 23 samples repeat others, and count once",
        "2 of 22 samples repeat others, with other labels: one of both is wrong",
    ]
    assert len(make_data(GRAPH, repeated, options=LoadOptions(repeats=True)).held) == 11
    recorded = make_data(GRAPH, None, recorded=repeated)
    assert (len(recorded.held), recorded.seen) == (10, True)
    signs = [[np.array(zeros, np.float32)] for zeros in ([[0.0, -0.0]], [[-0.0, 0.0]], [[0.0, 1.0]])]
    assert distinct(signs) == [0, 2]
    assert distinct(signs, np.array([0.0, -0.0, 1.0])) == [0, 2]
    assert without(signs, signs[:1]) == [2]
    copies = [[np.float32(1e-5 * (i + 1)) + a, b] for i, (a, b) in enumerate(repeated[12:15] * 5)]
    data = make_data(GRAPH, [*repeated, *copies])
    assert data.findings == [
        "12 of 37 samples repeat others, and count once",
        "15 of 25 samples repeat others but for noise, and count once",
    ]
    assert len(make_data(GRAPH, copies).held) == 3
    assert len(make_data(GRAPH, copies, options=LoadOptions(repeats=True)).held) == 7
    assert len(make_data(GRAPH, None, recorded=[*repeated, *copies]).held) == 10
    repeated[20][0] *= 1e6  # numbers are those of the source
    assert make_data(GRAPH, repeated).stands_out == [20]


def test_labels_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    inputs: dict[str, Any] = {f"in_{i}": np.zeros((16, 4), np.float32) for i in range(2)}
    np.savez(path, **inputs, y=np.arange(16))
    data = make_data(GRAPH, path, labels=True, options=LoadOptions(most=12))
    assert len(data.labels) == len(data.held) == 6
    assert make_data(GRAPH, path).labels is None
    np.savez(path, **inputs)
    with pytest.raises(OptionError, match="no labels; add array y to the file of --evaluation, or"):
        make_data(GRAPH, path, labels=True)


def test_recorded_inputs_and_made_up_ones() -> None:
    recorded = make_data(GRAPH, None, recorded=_samples(3))
    assert (recorded.fit, len(recorded.held), recorded.made_up) == ([], 3, False)
    other = [np.zeros((5, *value.shape), np.float32) for value in _samples(1)[0]]  # of a run in other shapes
    assert len(make_data(GRAPH, None, recorded=[*_samples(3), other]).held) == 3
    made_up = make_data(GRAPH, None, ranges={"a": (2.0, 3.0)})
    assert (made_up.fit, made_up.made_up) == ([], True)
    assert all(2.0 <= sample[0].min() <= sample[0].max() <= 3.0 for sample in made_up.held)
    assert not make_data(GRAPH, None, _samples(3)).made_up


PAIR = np.zeros((1, 4), np.float32)


@pytest.mark.parametrize(
    ("samples", "labels", "text"),
    [
        ([[np.zeros((1, 4))]], None, "sample 0 has 1 array, the model has 2 inputs"),
        ([[np.zeros((1, 4)), np.array(["x"])]], None, "sample 0 has str.* data, expected float32"),
        # Codes and pixels are no samples of a real input.
        *(
            (
                [[PAIR, np.full((1, 4), i, dtype)] for i in range(8)],
                None,
                f"sample 0 holds {dtype}, but the input takes",
            )
            for dtype in ("int8", "uint8", "int16")
        ),
        (_samples(3), [1, 2], "got 2 labels for 3 samples"),
        ([], None, "there is no sample"),
        (None, [1], "labels need the samples that they belong to"),
    ],
)
def test_refusals(samples: Samples | None, labels: list[int] | None, text: str) -> None:
    with pytest.raises(OdcError, match=text):
        make_data(GRAPH, samples, labels=labels)


def test_a_sample_far_from_all_others_is_named() -> None:
    samples = _samples(12)
    assert make_data(GRAPH, samples).stands_out == []
    samples[7][0] *= 1e6
    assert make_data(GRAPH, samples).stands_out == [7]
    assert make_data(GRAPH, samples, evaluation=_samples(3)).stands_out == [7]
    samples[2][0] *= 1e6
    data = make_data(GRAPH, samples)
    assert data.stands_out == [2, 7]
    assert len(data.usual) == 10
    assert make_data(GRAPH, _samples(1)).stands_out == []


def test_mean_and_scale_need_pictures(tmp_path: Path) -> None:
    options = LoadOptions(pictures=Pictures(mean=(3.0,)))
    (tmp_path / "raw.bin").write_bytes(b"")
    for source in (_samples(3), tmp_path, tmp_path / "samples.npz", None):
        with pytest.raises(OptionError, match="mean and scale apply to pixels of images, and no samples are"):
            make_data(GRAPH, source, options=options)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(InputError, match="images are for models with one input"):
        make_data(GRAPH, tmp_path, options=options)


@pytest.mark.parametrize("value", [1 << 40, -(1 << 31) - 1])
def test_whole_numbers_that_do_not_fit_are_refused(value: int) -> None:
    builder = ModelBuilder()
    x, z = (builder.tensor(name, (1, 4), "int32") for name in "xz")
    graph = build_graph(builder.finish([x, z], [builder.made("y", (1, 4), "ADD", x, z, dtype="int32")]))
    samples = [[np.full((1, 4), i, np.int64), np.zeros((1, 4), np.int64)] for i in range(4)]
    assert make_data(graph, samples).fit[0][0].dtype == np.int32
    samples[2][1][0, 3] = value
    with pytest.raises(InputError, match=rf"sample 2 holds {value}, outside int32's -2147483648\.\.2147483647"):
        make_data(graph, samples)
    data = make_data(GRAPH, [[np.arange(4), np.arange(4.0)[np.newaxis]]] * 8)  # without a batch
    assert {(array.dtype.name, array.shape) for sample in data.fit for array in sample} == {("float32", (1, 4))}
