from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.formats.quantities import Names, tensor_names


@pytest.mark.parametrize(
    ("names", "made"),
    [
        (["a", "b"], ["a", "b"]),
        (["", "b", ""], ["tensor 0", "b", "tensor 2"]),
        (["x", "x", "x"], ["x", "x#1", "x#2"]),
        (["tensor 1", "", "x#3", "x#3"], ["tensor 1", "tensor 1_2", "x#3", "x#3#3"]),
        (["x", "x", "x#1"], ["x", "x#1_2", "x#1"]),
    ],
)
def test_missing_and_repeated_names_are_made_up(names: list[str], made: list[str]) -> None:
    assert tensor_names(names) == made


@given(st.lists(st.sampled_from(["", "x", "x#1", "x#1_2", "tensor 1", "tensor 2", "tensor 1_2"]), max_size=12))
def test_names_tell_tensors_apart(names: list[str]) -> None:
    made = tensor_names(names)
    assert "" not in made
    assert len(set(made)) == len(names)
    assert all(b == a for place, (a, b) in enumerate(zip(names, made, strict=True)) if a and a not in names[:place])
    assert tensor_names(made) == made


def test_fresh_names() -> None:
    names = Names(["x", "x_2"])
    assert [names.fresh("x"), names.fresh("x"), names.fresh("y")] == ["x_3", "x_4", "y"]
