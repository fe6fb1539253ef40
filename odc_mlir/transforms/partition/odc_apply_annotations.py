"""``odc-apply-annotations``: record the user's placement of operators, by opcode or result name.

Before::

    %1 = circle.conv_2d … loc("conv")
    %2 = circle.relu %1 … loc("act")

After ``odc-apply-annotations{host=conv npu=RELU}``::

    %1 = circle.conv_2d … {odc.place = "host"} loc("conv")
    %2 = circle.relu %1 … {odc.place = "npu"} loc("act")

``npu-mark-supported`` and ``npu-choose-segments`` follow these attributes. An operator marked ``host`` stays on the
host. An operator marked ``npu`` runs on the NPU at any cost if the NPU supports it. Sources, in order of increasing
precedence, are the attribute in the model, the partition file, option ``host``, and option ``npu``. The file's backends
are ``host`` or ``cpu``, and ``npu`` or the target's name. Within a source, a name takes precedence over an opcode.

Rejects words that are neither an opcode nor the name of a result in the main function, and unknown backends.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from odc_mlir import ops
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.dialects.odc import target_of
from odc_mlir.errors import OptionError
from odc_mlir.formats.one import PartitionFile, parse_partition
from odc_mlir.support.locations import location_names
from odc_mlir.transforms.common.placement import HOST, NPU, PLACE, main_function, operators

BACKENDS: Mapping[str, str] = {"host": HOST, "cpu": HOST, "npu": NPU}


@dataclass(frozen=True)
class OdcApplyAnnotationsPass(ModulePass):
    """Record the user's placement of operators."""

    name = "odc-apply-annotations"

    file: str | None = None
    """Partition file, as in odc_mlir/formats/one.py."""

    host: tuple[str, ...] = ()
    """Opcodes and result names to run on the host."""

    npu: tuple[str, ...] = ()
    """Opcodes and result names to run on the NPU."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        found = list(operators(main_function(op)))
        if self.file is not None:
            choice = target_of(op)
            apply_file(_read(self.file), found, self.file, choice.target if choice else None)
        for place, words in ((HOST, self.host), (NPU, self.npu)):
            apply_words(place, words, found)


def _read(path: str) -> PartitionFile:
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read the partition file: {error}", location=path) from None
    return parse_partition(text, path)


def apply_file(file: PartitionFile, found: Sequence[CircleOp], location: str, target: str | None) -> None:
    """Annotate operators according to ``file``. Raises OptionError for a backend other than host and NPU."""
    places = dict(BACKENDS) | ({target: NPU} if target else {})
    for backend in file.backends:
        if backend not in places:
            raise OptionError(f"unknown backend {backend!r}, allowed: {', '.join(places)}", location=location)
    for op in found:
        names = [op.SPEC.name] if file.comply == "opcode" else location_names(op.location)
        backend = next((file.by_name[name] for name in names if name in file.by_name), file.default)
        _want(op, places[backend])


def apply_words(place: str, words: Sequence[str], found: Sequence[CircleOp]) -> None:
    """Annotate the operators that ``words`` name, opcodes first. Raises OptionError for a word without a match."""
    named = {name: op for op in found for name in location_names(op.location)}
    opcodes = [word for word in words if word not in named and word in ops.all_specs()]
    for op in found:
        if op.SPEC.name in opcodes:
            _want(op, place)
    for word in words:
        if word in named:
            _want(named[word], place)
        elif word not in opcodes:
            near = difflib.get_close_matches(word, [*named, *dict.fromkeys(op.SPEC.name for op in found)], 3)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "use an opcode or the name of a result"
            raise OptionError(f"{word!r} is neither an opcode nor the name of a result of an operator", hint=hint)


def _want(op: CircleOp, place: str) -> None:
    op.attributes[PLACE] = StringAttr(place)
