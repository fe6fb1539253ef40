"""Defects of the compiler: unexpected exceptions during the compilation of an operator.

The operator then runs on the host, and the package is correct. A warning asks for a bug report, and reports count
defects. If the variable ODC_DEFECTS is ``error``, as in the project's own checks, the exception is raised instead.
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
    """Failed operator (``op`` and its result ``tensor``), type and text of the exception, and its source line."""

    op: str
    tensor: str
    exception: str
    location: str

    @property
    def reason(self) -> str:
        """Reason for placement on the host."""
        return f"internal error: {self.exception}"


def defect_of(op: str, tensor: str, error: Exception) -> Defect:
    """Return the record of ``error``, or raise ``error`` if ODC_DEFECTS is ``error``."""
    if os.environ.get(VARIABLE) == "error":
        raise error
    frames = traceback.extract_tb(error.__traceback__)
    location = f"{'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}" if frames else "unknown"
    return Defect(op, tensor, " ".join(f"{type(error).__name__}: {error}".split()), location)


def record_defect(module: ModuleOp, defect: Defect) -> None:
    """Warn of a defect that moves an operator to the host, and record it on the module for reports."""
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
