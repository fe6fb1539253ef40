"""Rewrites of Circle models by name: one table that the pass ``circle-optimize``, the command and the docs derive from.

The names are those of ONE's ``circle2circle``, with ``_`` for ``-``. Level ``O1`` holds what keeps results: bit for bit
on codes, and on real numbers up to the order of sums and the rounding of folded constants.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from xdsl.pattern_rewriter import RewritePattern

from odc_mlir.errors import OptionError

O1 = "O1"
ON_REQUEST = "on request"


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """``pattern`` is ``module:class`` in :mod:`odc_mlir.transforms`; ``arguments`` restrict it to what the name says.

    A rewrite without pattern is done by the pass ``circle-optimize`` itself, on the whole function.
    """

    name: str
    summary: str
    pattern: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    level: str = O1

    def make(self) -> RewritePattern:
        """The pattern, ready to be applied; only for a rule that has one."""
        module, _, name = self.pattern.partition(":")
        found: RewritePattern = getattr(importlib.import_module(f"odc_mlir.transforms.{module}"), name)(
            **self.arguments
        )
        return found


def _fold(name: str, *operators: str) -> RewriteRule:
    listed = ", ".join(operators)
    return RewriteRule(
        name,
        f"{listed} of constants is a constant",
        "circle_fold_constants:FoldConstants",
        {"names": frozenset(operators)},
    )


def _drop(name: str, *operators: str, level: str = O1) -> RewriteRule:
    listed = ", ".join(operators)
    return RewriteRule(
        name,
        f"drop {listed} that gives its operand",
        "circle_simplify:DropIdentity",
        {"names": frozenset(operators)},
        level,
    )


def _fuse_behind(name: str, operators: Iterable[str], layer: str) -> RewriteRule:
    listed = " and ".join(operators)
    return RewriteRule(
        name,
        f"{listed} with constants behind {layer} goes into its weights and bias",
        "circle_fuse_batch_norm:FuseBehind",
        {"names": frozenset(operators), "layers": frozenset({layer})},
    )


_SUMS, _PRODUCTS = ("ADD", "SUB"), ("MUL", "DIV")

LAYOUTS = "convert_nchw_to_nhwc"

RULES: tuple[RewriteRule, ...] = (
    RewriteRule(LAYOUTS, "choose orders of dimensions with the fewest TRANSPOSEs (circle-assign-layouts)"),
    _fold("fold_add_v2", "ADD"),
    _fold("fold_mul", "MUL"),
    _fold("fold_cast", "CAST"),
    _fold("fold_gather", "GATHER"),
    _fold("fold_reshape", "RESHAPE"),
    _fold("fold_squeeze", "SQUEEZE"),
    _fold("fold_shape", "SHAPE"),
    _fold("fold_dequantize", "DEQUANTIZE"),
    _fold("fold_densify", "DENSIFY"),
    _fold("fold_sparse_to_dense", "SPARSE_TO_DENSE"),
    _fold("fold_dwconv", "DEPTHWISE_CONV_2D"),
    _fold("fold_fully_connected", "FULLY_CONNECTED"),
    _fuse_behind("fuse_add_with_conv", _SUMS, "CONV_2D"),
    _fuse_behind("fuse_mul_with_conv", _PRODUCTS, "CONV_2D"),
    _fuse_behind("fuse_add_with_tconv", _SUMS, "TRANSPOSE_CONV"),
    _fuse_behind("fuse_add_with_fully_connected", _SUMS, "FULLY_CONNECTED"),
    _fuse_behind("fuse_mul_with_fullyconnected", _PRODUCTS, "FULLY_CONNECTED"),
    _fuse_behind("fuse_batchnorm_with_conv", (*_PRODUCTS, *_SUMS), "CONV_2D"),
    _fuse_behind("fuse_batchnorm_with_dwconv", (*_PRODUCTS, *_SUMS), "DEPTHWISE_CONV_2D"),
    _fuse_behind("fuse_batchnorm_with_tconv", (*_PRODUCTS, *_SUMS), "TRANSPOSE_CONV"),
    _drop("remove_unnecessary_add", "ADD", "SUB"),
    _drop("remove_unnecessary_cast", "CAST"),
    _drop("remove_unnecessary_reshape", "RESHAPE", "SQUEEZE", "EXPAND_DIMS"),
    _drop("remove_unnecessary_transpose", "TRANSPOSE"),
    _drop("remove_unnecessary_slice", "SLICE"),
    _drop("remove_unnecessary_strided_slice", "STRIDED_SLICE"),
    _drop("remove_unnecessary_split", "SPLIT", "SPLIT_V"),
    _drop("remove_unnecessary_mul", "MUL", level=ON_REQUEST),
    _drop("remove_unnecessary_div", "DIV", level=ON_REQUEST),
    RewriteRule(
        "remove_redundant_reshape", "RESHAPE of a view reads what the view reads", "circle_simplify:MergeViews"
    ),
    RewriteRule(
        "remove_redundant_transpose", "TRANSPOSE of a TRANSPOSE has one permutation", "circle_simplify:MergeTransposes"
    ),
    RewriteRule(
        "substitute_transpose_to_reshape",
        "TRANSPOSE that moves dimensions of extent 1 only is a RESHAPE",
        "circle_simplify:TransposeToReshape",
    ),
)


def rules() -> Mapping[str, RewriteRule]:
    """Every rewrite by name."""
    return {rule.name: rule for rule in RULES}


def select(level: str | None, more: Iterable[str] = (), without: Iterable[str] = ()) -> list[RewriteRule]:
    """The rewrites of ``level`` (None: no level) and ``more``, in table order.

    Raises OptionError for an unknown name.
    """
    known = rules()
    added, dropped = frozenset(more), frozenset(without)
    for name in sorted(added | dropped):
        if name not in known:
            raise OptionError(f"unknown rewrite {name!r}", hint="odc-optimize --list tells their names")
    if level not in (None, O1):
        raise OptionError(f"unknown level {level!r}", hint=f"use {O1}")
    chosen = {rule.name for rule in RULES if level is not None and rule.level == level} | added
    return [rule for rule in RULES if rule.name in chosen - dropped]
