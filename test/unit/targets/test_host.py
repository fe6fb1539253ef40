"""Host costs: in a target file, shipped, or neither, and never part of what a target is."""

from __future__ import annotations

from importlib import resources

import pytest

from helpers.nodes import known_codes
from odc_mlir import ops, targets
from odc_mlir.errors import TargetError
from odc_mlir.ops.custom import known_spec
from odc_mlir.ops.spec import Node
from odc_mlir.ops.work import kernel_family
from odc_mlir.targets.costs import load_host, parse_host

TEXT = (resources.files(targets) / "npu-256.toml").read_text("utf-8")
WITHOUT = "\n".join(line for line in TEXT.splitlines() if not line.startswith("host = "))
TABLE = """
[host]
description = "mine"
operator_ns = 1
view_ns = 2
switch_ns = 3.5
tensor_ns = 4
transfer_bytes_per_us = 5
element_ns = {default = 1.5, pooling = 2}
mac_ns = {default = 0.25}
"""


def test_a_target_may_describe_its_host() -> None:
    host = targets.parse(WITHOUT + TABLE, "mine.toml").host
    assert (host.description, host.operator_ns, host.switch_ns) == ("mine", 1.0, 3.5)
    assert host.of_kernel(("MAX_POOL_2D", "pooling"), False, 10, 0) == 1 + 2 * 10
    assert host.of_kernel(("MAX_POOL_2D-codes", "pooling-codes"), False, 10, 0) == 1 + 2 * 10, "as real ones"
    assert host.of_kernel(("CONV_2D", "convolution"), False, 10, 100) == 1 + 1.5 * 10 + 0.25 * 100
    assert host.of_kernel(("RESHAPE", "shape"), True, 10, 0) == 2


def test_operators_count_before_families_and_codes_before_reals() -> None:
    table = "start_ns = {ADD = 10, ADD-codes = 20, elementwise-codes = 30, RESHAPE = 40}"
    host = targets.parse(WITHOUT + TABLE + table, "mine.toml").host
    found = [
        host.of_kernel(names, False, 0, 0)
        for names in (
            ("ADD", "elementwise"),
            ("ADD-codes", "elementwise-codes"),
            ("SUB-codes", "elementwise-codes"),
            ("SUB", "elementwise"),
        )
    ]
    assert found == [10, 20, 30, 1]
    assert host.of_kernel(("RESHAPE-codes", "shape-codes"), True, 9, 0) == 40
    assert host.restricted_to({"ADD", "SUB"}).start_ns == {"ADD": 10}
    assert parse_host(host.to_dict(), "here") == host


def test_a_host_may_be_like_another_one() -> None:
    text = WITHOUT + '\n[host]\ndescription = "slow"\nlike = "x86-64"\ntimes = 3\nswitch_ns = 7\n'
    host, base = targets.parse(text, "mine.toml").host, load_host("x86-64", "here")
    assert (host.switch_ns, host.tensor_ns, host.view_ns) == (7, base.tensor_ns, 3 * base.view_ns)
    names = "CONV_2D-codes", "convolution-codes"
    assert host.of_kernel(names, False, 100, 9) == pytest.approx(3 * base.of_kernel(names, False, 100, 9))
    with pytest.raises(TargetError, match="key 'host' names 'abc', known"):
        targets.parse(text.replace("x86-64", "abc"), "mine.toml")
    with pytest.raises(TargetError, match=r"unknown key 'host\.spare'"):
        targets.parse(text + "spare = 1\n", "mine.toml")


def test_reference_costs_are_the_default() -> None:
    assert targets.parse(WITHOUT, "mine.toml").host == targets.load("npu-256").host


def test_host_costs_are_no_part_of_a_target() -> None:
    mine, shipped = targets.parse(WITHOUT + TABLE, "mine.toml"), targets.load("npu-256")
    assert mine == shipped
    assert mine.host != shipped.host
    assert (mine.canonical, mine.digest("flash")) == (shipped.canonical, shipped.digest("flash"))
    assert "host" not in mine.canonical


@pytest.mark.parametrize("name", ["reference", "x86-64", "x86-64-kernels"])
def test_keys_name_kernels_and_operators(name: str) -> None:
    host = load_host(name, "here")
    custom = [spec for code in known_codes() if (spec := known_spec(code))]
    specs = {**ops.all_specs(), **{spec.name: spec for spec in custom}}
    known = {kernel_family(Node(spec, (), ())) for spec in specs.values()} | set(specs)
    for table in (host.start_ns, host.element_ns, host.mac_ns):
        assert {name.removesuffix("-codes") for name in table} - {"default"} <= known


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("view_ns = 2", "", "missing key 'host.view_ns'"),
        ("view_ns = 2", "view_ns = 2\nspare = 1", "unknown key 'host.spare'"),
        ("view_ns = 2", "view_ns = -2", "key 'host.view_ns' has the value -2, expected a number from 0"),
        ("view_ns = 2", "view_ns = true", "key 'host.view_ns' has the value True"),
        ("view_ns = 2", "view_ns = inf", "key 'host.view_ns' has the value inf"),
        ("{default = 0.25}", "{CONV_2D = 0.25}", "key 'host.mac_ns' must be a table with an entry 'default'"),
        ("{default = 0.25}", "{default = '1'}", "key 'host.mac_ns.default' has the value '1'"),
        (
            "view_ns = 2",
            "view_ns = 1e300",
            "key 'host.view_ns' has the value 1e+300, expected a number from 0 to 1e+12",
        ),
        ("view_ns = 2", f"view_ns = {10**400}", "key 'host.view_ns' has the value 1000"),
        ("= 5\n", "= 0\n", "key 'host.transfer_bytes_per_us' has the value 0, expected a number from 1e-06"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str) -> None:
    assert old in TABLE
    with pytest.raises(TargetError) as raised:
        targets.parse(WITHOUT + TABLE.replace(old, new), "mine.toml")
    assert str(raised.value).startswith(message)
    assert "in mine.toml" in str(raised.value)


def test_unknown_hosts_are_refused() -> None:
    with pytest.raises(TargetError, match="key 'host' names 'abc', known: reference, x86-64"):
        targets.parse(TEXT.replace('"reference"', '"abc"'), "mine.toml")
    with pytest.raises(TargetError, match="key 'host' must be a table or the name of a host"):
        targets.parse(TEXT.replace('"reference"', "5"), "mine.toml")
