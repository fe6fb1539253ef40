"""Defects of the compiler: unexpected exceptions.

An operator that the NPU does not get because of one still has its host kernel, so users get a package that is right and
a warning that asks for a report; reports count them. Where the variable ODC_DEFECTS is ``error``, as in the project's
own checks, the exception goes on instead.
"""

from __future__ import annotations

import logging
import os
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr

from odc_mlir.transforms.common.placement import DEFECTS

LOG = logging.getLogger(__name__)

VARIABLE = "ODC_DEFECTS"


@dataclass(frozen=True, slots=True)
class Defect:
    """Failed operator (``op`` and its result's name), the exception's type and text, and the line that raised it."""

    op: str
    tensor: str
    exception: str
    location: str

    @property
    def reason(self) -> str:
        """Return the reason for placement on the host."""
        return f"internal error: {self.exception}"


def defect_of(op: str, tensor: str, error: Exception) -> Defect:
    """The record of ``error``; raises it where defects are to be errors."""
    if os.environ.get(VARIABLE) == "error":
        raise error
    frames = traceback.extract_tb(error.__traceback__)
    location = f"{'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}" if frames else "unknown"
    return Defect(op, tensor, " ".join(f"{type(error).__name__}: {error}".split()), location)


def record_defect(module: ModuleOp, defect: Defect) -> None:
    """Warn of a defect that sends an operator to the host, and note it on the module for reports."""
    LOG.warning(
        "%s %r runs on the host because of a defect of the compiler (%s at %s); please report it",
        defect.op,
        defect.tensor,
        defect.exception,
        defect.location,
    )
    before = module.attributes.get(DEFECTS)
    entry = DictionaryAttr({key: StringAttr(value) for key, value in asdict(defect).items()})
    module.attributes[DEFECTS] = ArrayAttr([*(before.data if isinstance(before, ArrayAttr) else ()), entry])
