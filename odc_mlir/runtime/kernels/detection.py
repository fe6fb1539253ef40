"""TFLite_Detection_PostProcess: detections from boxes and class scores of an SSD network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from odc_mlir.numerics.detection import decode_boxes, descending, suppress
from odc_mlir.ops.custom import custom_option
from odc_mlir.ops.infer.common import positive, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import computed, input_error, scale_of


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the operator: ``each`` limits the classes per detection, ``per_class`` the detections per class."""

    classes: int
    most: int
    each: int
    per_class: int
    thorough: bool
    least_score: float
    overlap: float


@dataclass(slots=True)
class _Detections:
    """``count`` detections, padded with zero rows: ``boxes [rows, 4]``, ``classes [rows]`` and ``scores [rows]``."""

    boxes: Array
    classes: Array
    scores: Array
    count: int = 0

    def results(self) -> list[Array]:
        return [self.boxes[None], self.classes[None], self.scores[None], np.array([self.count], np.float32)]


def detection_post_process(node: Node) -> Execute:
    """Compute boxes ``[1, n, 4]``, classes and scores ``[1, n]`` and the number of detections, float32.

    Operands are encoded boxes ``[1, n, 4 or more]``, scores ``[1, n, classes]`` (``classes`` plus 1 if the first class
    is the background) and anchors ``[n, 4]``, float or quantised.
    """
    reals = [_real(node, node.operand(index)) for index in range(3)]
    options = _options(node)
    scales = np.array([custom_option(node, f"{name}_scale", 0.0) for name in "yxhw"], np.float32)
    if not (scales > 0).all():
        raise node.error(f"the options y_scale, x_scale, h_scale, w_scale are {scales.tolist()}; they must be positive")

    def compute(*operands: Array) -> list[Array]:
        codes, scores, anchors = (real(values) for real, values in zip(reals, operands, strict=True))
        if codes.ndim != 3 or scores.ndim != 3 or codes.shape[:2] != scores.shape[:2] or len(anchors) != codes.shape[1]:
            raise input_error(
                node, f"boxes {list(codes.shape)}, scores {list(scores.shape)} and {len(anchors)} anchors do not agree"
            )
        first = scores.shape[2] - options.classes
        if first not in (0, 1):
            raise input_error(node, f"there are scores of {scores.shape[2]} classes; num_classes is {options.classes}")
        boxes = decode_boxes(codes[0], anchors, scales)
        detect = _thorough if options.thorough else _fast
        return detect(boxes, scores[0, :, first:], options).results()

    return computed(node, compute, several=True)


def _real(node: Node, info: TensorInfo) -> Callable[[Array], Array]:
    require_dtype(node, info, "float32", "uint8", "int8")
    if info.dtype == "float32":
        return lambda values: values
    scale, zero = scale_of(node, info)
    return lambda values: (values.astype(np.float32) - np.float32(zero)) * np.float32(scale)


def _options(node: Node) -> _Options:
    def size(name: str, default: int) -> int:
        return positive(node, name, custom_option(node, name, default))

    return _Options(
        classes=size("num_classes", 0),
        most=size("max_detections", 0),
        each=size("max_classes_per_detection", 1),
        per_class=size("detections_per_class", 100),
        thorough=custom_option(node, "use_regular_nms", False),
        least_score=custom_option(node, "nms_score_threshold", 0.0),
        overlap=custom_option(node, "nms_iou_threshold", 0.0),
    )


def _empty(options: _Options) -> _Detections:
    rows = options.most * options.each
    return _Detections(np.zeros((rows, 4), np.float32), np.zeros(rows, np.float32), np.zeros(rows, np.float32))


def _fast(boxes: Array, scores: Array, options: _Options) -> _Detections:
    found, each = _empty(options), min(options.each, options.classes)
    kept = suppress(boxes, scores.max(axis=1), options.most, options.least_score, options.overlap)
    for position, box in enumerate(kept):
        best, rows = descending(scores[box])[:each], slice(position * options.each, position * options.each + each)
        found.boxes[rows], found.classes[rows], found.scores[rows] = boxes[box], best, scores[box, best]
    found.count = len(kept)
    return found


def _thorough(boxes: Array, scores: Array, options: _Options) -> _Detections:
    found, rows = _empty(options), []
    for label in range(options.classes):
        kept = suppress(boxes, scores[:, label], options.per_class, options.least_score, options.overlap)
        rows += [(float(scores[box, label]), label, int(box)) for box in kept]
    best = descending(np.array([row[0] for row in rows], np.float32))[: options.most]
    for position, place in enumerate(best):
        score, label, box = rows[place]
        found.boxes[position], found.classes[position], found.scores[position] = boxes[box], label, score
    found.count = len(best)
    return found
