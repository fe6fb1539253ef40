"""Partition files say which backend runs what."""

from __future__ import annotations

import pytest

from odc_mlir.errors import OptionError
from odc_mlir.formats.one import PartitionFile, parse_partition

HEAD = "[partition]\nbackends=cpu,npu\ndefault=npu\n"
OPCODES, NAMES = "[OPCODE]\nDIV=cpu\n_=cpu\nAdd=npu\n", "[OPNAME]\na/b:0;1=cpu\n"


def test_opcodes_by_default() -> None:
    assert parse_partition(HEAD + OPCODES + NAMES, "x") == PartitionFile(
        ("cpu", "npu"), "cpu", "opcode", {"DIV": "cpu", "Add": "npu"}
    )


def test_names_as_they_are() -> None:
    file = parse_partition(HEAD + "comply=opname\n" + OPCODES + NAMES, "x")
    assert file == PartitionFile(("cpu", "npu"), "npu", "opname", {"a/b:0;1": "cpu"})


def test_the_default_alone() -> None:
    assert parse_partition(HEAD, "x") == PartitionFile(("cpu", "npu"), "npu", "opcode", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("backends=cpu", "not a partition file: File contains no section headers"),
        ("[OPCODE]\nDIV=cpu", "the section [partition] is missing"),
        ("[partition]\ndefault=cpu", "the key 'backends' of [partition] is missing"),
        ("[partition]\nbackends=cpu", "the key 'default' of [partition] is missing"),
        (HEAD + "comply=name", "comply is 'name', allowed: opcode, opname"),
        (HEAD + "[OPCODE]\nDIV=gpu", "'DIV' runs on 'gpu', the backends are cpu, npu"),
        (HEAD.replace("default=npu", "default=gpu"), "'default' runs on 'gpu', the backends are cpu, npu"),
        (HEAD + "[OPS]\nDIV=cpu", "unknown section [OPS], allowed: OPCODE, OPNAME, partition"),
        (HEAD + "[OPCODE]\nDIV=cpu\nDIV=npu", "not a partition file: While reading"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_partition(text, "net.part")
    assert str(raised.value).startswith(message)
    assert "in net.part" in str(raised.value)
