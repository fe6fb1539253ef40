"""``odc-set-target``: record the target in the module, for all later passes.

After: the module has ``odc.target = #odc.target<"npu-256", memory = flash, prefer = performance, numerics = fixed>``.

Rejects an unknown or malformed target, invalid choices, and an SRAM limit above the target's capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir import targets
from odc_mlir.dialects.odc import TARGET, WORDS, TargetAttr, TargetChoice
from odc_mlir.errors import OptionError


@dataclass(frozen=True)
class OdcSetTargetPass(ModulePass):
    """Record the target."""

    name = "odc-set-target"

    target: str = "npu-256"
    """A shipped target's name or the path of a .toml file."""

    memory: str = "flash"
    """Memory of constants at run time: flash (off-chip) or sram."""

    prefer: str = "performance"
    """Optimisation goal: performance, memory, compile-time or fewest-cycles."""

    sram_limit: int | None = None
    """Limit on SRAM for activations and prefetched constants, in bytes. Default: the capacity."""

    allow_host: bool = False
    """Move operators that do not fit in the SRAM limit to the host. By default, they are an error."""

    numerics: str = "fixed"
    """Requantisation of fully connected layers: fixed (multipliers, as TFLite up to 2.19) or litert (host only)."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        op.attributes[TARGET] = TargetAttr(self.choice())

    def choice(self) -> TargetChoice:
        """Return the options as the attribute's value. Raises OptionError or TargetError if they are invalid."""
        for field in ("memory", "prefer", "numerics"):
            if (value := getattr(self, field)) not in WORDS[field]:
                raise OptionError(f"{field} is {value!r}, allowed: {', '.join(WORDS[field])}")
        capacity = targets.load(self.target).sram.capacity_bytes
        if self.sram_limit is not None and not 0 < self.sram_limit <= capacity:
            raise OptionError(f"the SRAM limit is {self.sram_limit} bytes, allowed: 1 to {capacity} ({self.target})")
        return TargetChoice(self.target, self.memory, self.prefer, self.sram_limit, self.numerics, self.allow_host)
