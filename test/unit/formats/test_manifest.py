"""MANIFEST and config.cfg: what readers of nnpackages tolerate, and what nobody should."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.errors import PackageError
from odc_mlir.formats.manifest import (
    Connection,
    IoIndex,
    Manifest,
    check_member_path,
    format_config,
    parse_config,
    parse_manifest,
)


def _manifest(**values: Any) -> bytes:
    return json.dumps({"major-version": "1", "minor-version": "0", "models": ["m.circle"], **values}).encode()


def test_round_trip() -> None:
    manifest = Manifest(("model.circle",), ("circle",), ("config.cfg",), "odc/12/plan.json")
    assert parse_manifest(manifest.to_json()) == manifest


def test_foreign_keys_and_versions() -> None:
    read = parse_manifest(_manifest(**{"minor-version": 9, "author": "x", "pkg-inputs": ["0:0:0"]}))
    assert read == Manifest(("m.circle",), inputs=(IoIndex(0, 0, 0),))
    assert not read.is_connected


def test_connections_round_trip() -> None:
    edge = Connection(IoIndex(0, 0, 1), (IoIndex(1, 0, 0), IoIndex(1, 0, 2)))
    manifest = Manifest(
        ("a.circle", "b.circle"),
        ("circle", "circle"),
        inputs=(IoIndex(0, 0, 0), IoIndex(1, 0, 1)),
        outputs=(IoIndex(1, 0, 0), IoIndex(0, 0, 1)),
        connections=(edge,),
    )
    assert manifest.is_connected
    assert parse_manifest(manifest.to_json()) == manifest
    assert json.loads(manifest.to_json())["minor-version"] == "3"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"models" : ["m.circle"] "x" : 1}', "metadata/MANIFEST is not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "must hold a JSON object"),
        (_manifest(**{"major-version": "2"}), "major-version is '2' .* only nnpackages of version 1"),
        (_manifest(models=[]), "lists no models"),
        (_manifest(models="m.circle"), "'models' .* must be a list of strings"),
        (_manifest(models=[1]), "'models' .* must be a list of strings"),
        (_manifest(models=["../m.circle"]), "'../m.circle' is not in its simplest form or leaves the package"),
        (_manifest(**{"model-types": {}}), "'model-types' .* must be a list"),
        (_manifest(**{"pkg-inputs": ["0:0"]}), "'0:0' in 'pkg-inputs' .* not of the form model:subgraph:index"),
        (_manifest(**{"pkg-outputs": ["0:0:-1"]}), "'0:0:-1' in 'pkg-outputs' .* not of the form"),
        (_manifest(**{"pkg-outputs": ["0:0:0", "0:0:0"]}), "'pkg-outputs' .* lists something twice"),
        (_manifest(**{"model-connect": [{"to": []}]}), "'model-connect' .* objects with 'from' and 'to'"),
        (_manifest(**{"model-connect": [{"from": 3}]}), "3 in 'model-connect' .* not of the form"),
        (
            _manifest(**{"pkg-inputs": ["1:0:0"], "model-connect": [{"from": "0:0:0", "to": ["1:0:0"]}]}),
            "1:0:0 is an input of the package .* but 'model-connect' feeds it",
        ),
        (
            _manifest(models=["a", "b"], **{"model-connect": [{"from": "0:0:0", "to": ["1:0:0"]}]}),
            "connects models, so it must list 'pkg-inputs' and 'pkg-outputs'",
        ),
        (_manifest(**{"odc-plan": 3}), "the member path 3 is not a path"),
        (_manifest(**{"odc-plan": "/etc/passwd"}), "'/etc/passwd' is absolute"),
        (_manifest(configs=["../../etc/passwd"]), "'../../etc/passwd' is not in its simplest form or leaves"),
    ],
)
def test_rejections(data: bytes, text: str) -> None:
    with pytest.raises(PackageError, match=text):
        parse_manifest(data)


@pytest.mark.parametrize("path", ["a", "a/b.c", "metadata/MANIFEST", "ünï/cödé", "..a/b..", "a b"])
def test_good_paths(path: str) -> None:
    assert check_member_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "./a",
        "a/./b",
        "..",
        "../a",
        "a/../b",
        "a\\b",
        "C:a",
        "a\0b",
        "a\nb",
        "\ud800",
        "a" * 1025,
    ],
)
def test_bad_paths(path: str) -> None:
    with pytest.raises(PackageError, match="the member path"):
        check_member_path(path)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ('BACKENDS="cpu;npu"  # two\n', {"BACKENDS": "cpu;npu"}),
        ("A=1\nA = 2\n", {"A": "2"}),
        ("OnDeviceCompilation 1\n", {"OnDeviceCompilation": "1"}),
        ("A=\n=1\n# only a comment\n\nalone\n", {}),
        ("A='x'\nB=\"\n", {"A": "x", "B": '"'}),
        ("P=a=b\n", {"P": "a=b"}),
    ],
)
def test_config(text: str, settings: dict[str, str]) -> None:
    assert parse_config(text.encode()) == settings


def test_config_is_read_whatever_its_bytes() -> None:
    assert parse_config(b"A=\xff\nB=1") == {"A": "\ufffd", "B": "1"}


WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="_.;-"), min_size=1, max_size=8)


@given(st.dictionaries(WORDS, WORDS, max_size=4))
def test_config_round_trip(settings: dict[str, str]) -> None:
    assert parse_config(format_config(settings)) == settings
