"""Float operators in native code and on the host: the same kind of number for every kind of operand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

import odc_mlir
from helpers.float_edges import GROUPS, Case, joined
from helpers.models import model_bytes
from helpers.native import skip_unless_it_runs
from odc_mlir import ops
from odc_mlir.ops.custom import KNOWN
from odc_mlir.ops.spec import OpSpec
from odc_mlir.transforms.native.lowering.operators import PATTERNS

REFUSED = re.compile("ha(s|ve) no native kernel")


@pytest.mark.parametrize("target", ["cpu", pytest.param("x86-64-avx2", marks=pytest.mark.soak)])
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_native_code_equals_the_host(group: Callable[[], Iterator[Case]], target: str) -> None:
    skip_unless_it_runs(target)
    cases = list(group())
    model, inputs = joined(cases)
    content = model_bytes(model)
    package = odc_mlir.compile(content, target=target)
    assert package.plan is not None
    refused = [reason for reason in package.plan.host_reasons.values() if REFUSED.search(reason)]
    assert not refused, "cases of operators with a kernel must be native"
    found = iter(odc_mlir.run(package, inputs))
    expected = iter(odc_mlir.run(content, inputs, backend="host"))
    wrong = [
        f"{item}: {text}"
        for item in cases
        for _ in item.made.results
        if (text := item.difference(next(found), next(expected)))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_native_operator_on_floats_has_a_case() -> None:
    native = {name for pattern in PATTERNS for name in pattern.operators}
    on_floats = {name for name in native if any(not o.dtypes or "float32" in o.dtypes for o in spec_of(name).operands)}
    assert on_floats <= {item.name for group in GROUPS for item in group()}


def spec_of(name: str) -> OpSpec:
    return KNOWN[name[7:-1]] if name.startswith("CUSTOM(") else ops.get(name)
