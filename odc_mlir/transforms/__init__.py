"""The passes by name; each is imported when it is first asked for.

Every room is a folder whose files are its passes; what passes share lies in folders below. Pass ``circle-infer-shapes``
is ``CircleInferShapesPass`` in ``circle/circle_infer_shapes.py``. :mod:`odc_mlir.pipelines` says in which order they
run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

# Room (folder) -> its passes, in the order of the pipelines where they have one.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "circle": (
        "circle-infer-shapes",
        "circle-resolve-customs",
        "circle-fold-constants",
        "circle-optimize",
        "circle-simplify",
        "circle-assign-layouts",
        "circle-fuse-patterns",
        "circle-clip-masks",
        "circle-fuse-activation",
        "circle-fuse-batch-norm",
        "circle-equalize-channels",
    ),
    "quant": (
        "quant-attach-ranges",
        "quant-assign-params",
        "quant-propagate-params",
        "convert-circle-to-quant",
        "quant-insert-requantize",
        "quant-weights-only",
        "quant-fake-quantize",
        "quant-flip-sign",
        "quant-fold-requantize",
        "quant-verify-params",
        "quant-round-weights",
        "quant-correct-biases",
    ),
    "partition": (
        "odc-set-target",
        "odc-fix-batch",
        "odc-apply-annotations",
        "npu-mark-supported",
        "npu-form-groups",
        "npu-choose-segments",
        "npu-form-segments",
        "npu-outline-segments",
        "odc-verify-boundaries",
    ),
    "npu": (
        "convert-circle-to-npu",
        "npu-fuse-padding",
        "npu-elide-reshapes",
        "npu-choose-tiles",
        "npu-lower-to-tiles",
        "npu-encode-weights",
        "npu-allocate-local",
        "npu-hoist-transfers",
        "npu-prefetch-constants",
        "npu-allocate-memory",
        "npu-insert-sync",
        "npu-verify-memory",
        "npu-roll-loops",
    ),
    "native": (
        "native-set-target",
        "native-decode-constants",
        "native-mark-supported",
        "native-form-segments",
        "convert-circle-to-kernels",
        "native-allocate-memory",
        "native-write-kernels",
        "convert-native-to-llvm",
    ),
}

_ROOM_OF = {name: room for room, names in ROOMS.items() for name in names}

NAMES = tuple(_ROOM_OF)


def room_of(name: str) -> str:
    """The folder of the pass called ``name``, one of :data:`NAMES`."""
    return _ROOM_OF[name]


def load(name: str) -> type[ModulePass]:
    """The class of the pass called ``name``, one of :data:`NAMES`."""
    module = importlib.import_module(f"{__name__}.{room_of(name)}.{name.replace('-', '_')}")
    found: type[ModulePass] = getattr(module, "".join(part.capitalize() for part in name.split("-")) + "Pass")
    return found


def all_passes() -> Mapping[str, Callable[[], type[ModulePass]]]:
    """Every pass as a function that imports it: the form that xDSL's drivers take."""
    return {name: partial(load, name) for name in NAMES}
