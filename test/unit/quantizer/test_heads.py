"""Models with several outputs, some of which are scores of classes by their values alone, and logits in rows."""

from __future__ import annotations

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import InputError

COUNT, INPUTS = 64, 12
Samples = list[list[np.ndarray]]


def _head(builder: ModelBuilder, source: int, name: str, weights: np.ndarray) -> int:
    """A layer ``name`` of these ``weights``, [outputs, inputs]."""
    result = builder.tensor(name, (1, len(weights)))
    given = builder.tensor("", weights.shape, data=weights.astype(np.float32))
    builder.operator("FULLY_CONNECTED", [source, given, -1], [result])
    return result


def _trained(classes: int, common: float = 0.0, seed: int = 1) -> np.ndarray:
    """Weights of logits whose sum stays, beside what ``common`` all have, which codes spend their range on."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(classes, INPUTS))
    return np.asarray(weights - weights.mean(axis=0) + common * rng.normal(size=INPUTS))


def _samples() -> Samples:
    rng = np.random.default_rng(2)
    return [[rng.normal(size=(1, INPUTS)).astype(np.float32)] for _ in range(COUNT)]


def _model(heads: dict[str, np.ndarray], shares: str | None = None) -> bytes:
    """Layers by name beside each other; ``shares``: one more output, a SOFTMAX of the head with this name."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, INPUTS))
    found = {name: _head(builder, x, name, weights) for name, weights in heads.items()}
    if shares is not None:
        found["shares"] = builder.tensor("shares", (1, len(heads[shares])))
        builder.operator("SOFTMAX", [found.pop(shares)], [found["shares"]], options={"beta": 1.0})
    return bytes(model_bytes(builder.finish([x], list(found.values()))))


def test_labels_that_do_not_fit_say_which_output_they_are_for() -> None:
    samples, file = _samples(), _model({"few": _trained(3), "many": _trained(9)})
    labels = np.array([int(odc_mlir.run(file, sample)[1].argmax()) for sample in samples])
    said = "labels are compared with output 'few' alone, none of the other 1: "
    with pytest.raises(InputError, match=f"the model's 3 classes 0 to 2; {said}number classes"):
        odc_mlir.quantize(file, calibration=samples, labels=labels, help=False)
    with pytest.raises(InputError, match=f"neither class numbers nor .*; {said}give a whole number"):
        odc_mlir.quantize(file, calibration=samples, labels=np.stack([labels, labels], axis=1), help=False)
    with pytest.raises(InputError, match="3 classes 0 to 2; number classes"):  # there is no other
        odc_mlir.quantize(_model({"few": _trained(3)}), calibration=samples, labels=labels, help=False)
