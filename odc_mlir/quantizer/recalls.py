"""What quantising does to the answers of single classes: all together may be as often right, and one of them lost.

A class whose logits are nearer to another's than a step of the codes is given up for that one, and where the other is
at least as frequent no share of right answers falls. So recall, the share of a label's answers that are right, is
compared for each class, sample by sample: of the samples whose answers to it get worse or better half would get worse
if only chance had changed them (the sign test, as McNemar's exact one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odc_mlir.formats.quantities import counted
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.reporting.scoring import chosen_classes, sign_test

# That chance does what is taken for more: to any class of those that limits are checked on, to one that is told of.
_RISK, _RISK_TOLD = 0.01, 0.05
# What is told of, in percentage points.
_TOLD_POINTS = 10.0
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Recall:
    """Of how many answers to ``label`` a model gives the right one, in percent, ``before`` and ``after`` quantising.

    ``samples`` have such a label; of so many answers to it are ``lost`` or ``gained``.
    """

    label: int
    samples: int
    before: float
    after: float
    lost: int
    gained: int

    @property
    def fall(self) -> float:
        """By how many percentage points it falls."""
        return self.before - self.after

    @property
    def chance(self) -> float:
        """The probability that chance alone loses so many, or more, of those that change."""
        return sign_test(self.lost, self.gained)

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a verdict."""
        return {"label": self.label, "samples": self.samples, "float": self.before, "quantized": self.after}


def recalls(before: Sequence[Array], after: Sequence[Array], labels: Array) -> list[Recall]:
    """The recall of each class that ``labels`` have, by two models' answers; none where labels are no classes.

    Answers and labels are those of each sample, as :func:`odc_mlir.runtime.reporting.scoring.compared` has them.
    """
    was_chosen, is_chosen = (chosen_classes(answers, labels) for answers in (before, after))
    if was_chosen is None or is_chosen is None or not labels.size:
        return []
    classes, places = np.unique(labels.ravel(), return_inverse=True)
    places = places.reshape(-1)
    was, is_right = ((found == labels.ravel()).astype(np.float64) for found in (was_chosen, is_chosen))
    samples = np.repeat(np.arange(len(labels)), labels.size // len(labels))
    # By how many answers more are right, of each sample that has the class.
    pairs, inverse = np.unique(samples * len(classes) + places, return_inverse=True)
    change = np.bincount(inverse.reshape(-1), weights=is_right - was)

    def count(of: Array, weights: Array | None = None) -> Array:
        return np.bincount(of, weights, minlength=len(classes))

    total, of_pair = count(places), pairs % len(classes)
    percent = [100.0 * count(places, right) / total for right in (was, is_right)]
    lost, gained = count(of_pair[change < 0]), count(of_pair[change > 0])
    having, (before_percent, after_percent) = count(of_pair), percent
    return [
        Recall(label, int(having[i]), float(before_percent[i]), float(after_percent[i]), int(lost[i]), int(gained[i]))
        for i, label in enumerate(classes.tolist())
    ]


def recall_drop(found: Sequence[Recall]) -> float:
    """By how many points the recall of a class falls at most that is lost beyond chance; 0 where none is."""
    return max((item.fall for item in found if item.chance <= _RISK / len(found)), default=0.0)


def recall_findings(found: Sequence[Recall]) -> list[str]:
    """What is said of classes that lose more than ten points, which may be too few samples to refuse a model for."""
    lost = [item for item in found if item.fall > _TOLD_POINTS and item.chance <= _RISK_TOLD]
    lost.sort(key=lambda item: -item.fall)
    luck = "" if recall_drop(found) else ", or it is luck, which recall_drop leaves out"
    return [
        f"recall of class {item.label} falls from {item.before:.1f} to {item.after:.1f} % "
        f"({counted(item.samples, 'sample')}): what tells it from others is finer than codes{luck}; more bits for the "
        "last layers may keep it"
        for item in lost[:_NAMED]
    ]


def never_answered(name: str, outputs: Sequence[Array], classes: int) -> str | None:
    """What is said of ``classes`` that no sample's answer is; None where all are, or where samples are fewer.

    Nor is anything said where outputs are no rows of so many.

    ``outputs``: scores of classes of each sample, [..., classes] in rows, which the model has as output ``name``.
    """
    if len(outputs) < classes or any(output.size % classes for output in outputs):
        return None
    answers = np.concatenate([output.reshape(-1, classes).argmax(axis=1) for output in outputs])
    missing = np.setdiff1d(np.arange(classes), answers)
    if not missing.size:
        return None
    names = ", ".join(map(str, missing[:_NAMED].tolist())) + (", …" if missing.size > _NAMED else "")
    return (
        f"the float model answers {missing.size} of {classes} classes for no sample ({names}) in output {name!r}: "
        "whether the quantised one does is not checked; give samples of them"
    )


def by_loss(classes: Sequence[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Of a verdict's classes so many at ``most``, those first that lose most."""
    return sorted(classes, key=lambda item: item["quantized"] - item["float"])[:most]
