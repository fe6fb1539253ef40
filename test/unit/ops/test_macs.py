"""What the operator table says of multiply-accumulates is what host kernels do.

A process of its own counts the products in instrumented kernels (helpers/count_products.py), over the whole corpus of
small models and over cases for the rest of the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import helpers.count_products
from helpers.data import MISSING, data_folder
from helpers.nodes import const, known_codes, node, tensor
from odc_mlir.ops import all_specs
from odc_mlir.ops.custom import known_spec

# Their kernels also multiply zeros: those put between pixels that the stride moves apart.
WITH_ZEROS = {"TRANSPOSE_CONV"}

# They move, compare or map single elements, or call what is counted by itself; none is in the corpus.
_NAMES = """
ASSIGN_VARIABLE ATAN2 BCQ_GATHER BITCAST BITWISE_XOR BROADCAST_ARGS BUCKETIZE CALL CALL_ONCE COMPLEX_ABS COS CUSTOM
DILATE DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP_SPARSE FLOOR HASHTABLE HASHTABLE_FIND
HASHTABLE_IMPORT HASHTABLE_LOOKUP HASHTABLE_SIZE IMAG LOCAL_RESPONSE_NORMALIZATION LOGICAL_AND LOGICAL_OR
LSH_PROJECTION MATRIX_DIAG MATRIX_SET_DIAG MULTINOMIAL RANDOM_STANDARD_NORMAL READ_VARIABLE REAL
REDUCE_ALL REDUCE_WINDOW RIGHT_SHIFT RMS_NORM ROUND RUN_MODEL SCATTER_ND SKIP_GRAM UNSORTED_SEGMENT_MAX
UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM VAR_HANDLE
"""
WITHOUT_PRODUCTS = frozenset(_NAMES.split())


@cache
def counted() -> dict[str, list[dict[str, Any]]]:
    """Records of every operator that is run, by model or case."""
    root = data_folder()
    models = sorted((root / "conformance" / "data").glob("*.npz")) if root is not None else []
    files = [path.parents[1] / "models" / f"{path.stem}.circle" for path in models]
    command = [sys.executable, str(Path(helpers.count_products.__file__)), *map(str, files)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def test_products_are_counted() -> None:
    """No operator multiplies more, or less, than it says; the table says none of the others by saying nothing."""
    wrong = [
        f"{name}: {record}"
        for name, records in counted().items()
        for record in records
        if record["products"] != record["macs"]
        and not (record["op"] in WITH_ZEROS and record["products"] > record["macs"] > 0)
    ]
    assert not wrong, "\n".join(wrong)


def _with_products() -> set[str]:
    custom = [spec for code in known_codes() if (spec := known_spec(code)) is not None]
    return {spec.name for spec in (*all_specs().values(), *custom) if spec.macs}


@pytest.mark.skipif(data_folder() is None, reason=MISSING)
def test_every_operator_that_says_so_is_counted() -> None:
    found = {record["op"] for records in counted().values() for record in records if record["macs"]}
    assert not {name for name in _with_products() if not name.startswith("CUSTOM")} - found


def test_every_operator_is_counted_or_known_to_have_no_products() -> None:
    if data_folder() is None:
        pytest.skip(MISSING)
    found = {record["op"] for records in counted().values() for record in records}
    assert set(all_specs()) - found == WITHOUT_PRODUCTS, "add a case to helpers/product_cases.py, or a name here"


def test_unknown_sizes_count_as_none() -> None:
    weights = const([[1.0, 2.0]], "float32")
    assert node("FULLY_CONNECTED", [tensor("float32", (3, 2)), weights, None], tensor("float32", (3, 1))).macs == 6
    assert node("FULLY_CONNECTED", [tensor("float32", None), weights, None], tensor("float32", (None, 1))).macs == 0
    assert node("FULLY_CONNECTED", [tensor("float32", None), weights, None], tensor("float32", None)).macs == 0
