"""Well-formed files with wrong contents: a typed error or a result, in bounded time and memory, in each thing one does.

``ODC_FUZZ_CASES`` sets how many mutants are made of all seeds together (default 150), ``ODC_FUZZ_SEED`` where they
start; a failing case says both, and what was changed in which model.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from helpers.exercise import exercise
from helpers.mutation import Seed, structure

CASES = int(os.environ.get("ODC_FUZZ_CASES", "150"))
SEED = int(os.environ.get("ODC_FUZZ_SEED", "1"))

# One case in so many is also compiled and run on the NPU's simulator.
COMPILED = 10

# Operators of all kinds: windows, matrices, shapes as operands, growth, strings, control flow, state, sparse and
# quantised constants, unknown sizes, several entries.
FILES = (
    "models/zoo/kws_ref_model.tflite",
    "models/zoo-int16/digits_cnn_int16.circle",
    "models/digits/digits_cnn_int8.circle",
    "models/digits/digits_dynbatch.circle",
    *(
        f"conformance/models/{name}.circle"
        for name in (
            "Add_STR_001",
            "BatchToSpaceND_000",
            "BCQFullyConnected_001",
            "CircleBatchMatMul_U4_000",
            "Densify_000",
            "DepthwiseConv2D_U8_000",
            "Fill_001",
            "FullyConnected_I4_001",
            "GatherNd_000",
            "If_001",
            "Inf_StridedSlice_001",
            "MaxPoolWithArgmax_000",
            "Mean_dynamic_000",
            "Net_TConv_BN_000",
            "Net_ZeroDim_001",
            "NonMaxSuppressionV5_000",
            "OneHot_001",
            "Quant_Conv_Mul_Add_000",
            "Quant_Split_Add_001",
            "Range_000",
            "ReduceAny_dynamic_004",
            "ResizeNearestNeighbor_000",
            "SVDF_000",
            "SegmentSum_000",
            "SignatureDef_MultiOut_000",
            "SparseToDense_000",
            "Tile_002",
            "TopKV2_000",
            "UnidirectionalSequenceLSTM_001",
            "Unique_001",
            "Where_001",
            "While_003",
        )
    ),
)


@pytest.fixture(scope="module")
def seeds(test_data: Path) -> list[Seed]:
    return [Seed(name, (test_data / name).read_bytes()) for name in FILES]


@pytest.mark.timeout(120 + CASES)
def test_mutants(seeds: list[Seed]) -> None:
    for case in range(CASES):
        rng = random.Random(f"{SEED}/{case}")
        seed = rng.choice(seeds)
        mutant = seed.mutant(rng)
        outcome = exercise(mutant.data, rng, compiled=case % COMPILED == 0)
        if outcome.finding is not None:
            pytest.fail(f"case {SEED}/{case}, {seed.name}, {'; '.join(mutant.steps)}: {outcome.finding}")


def test_mutants_repeat(seeds: list[Seed]) -> None:
    first, second = (seeds[0].mutant(random.Random("same")) for _ in range(2))
    assert first == second
    assert first.data != seeds[0].data


def test_seeds_themselves_run(seeds: list[Seed]) -> None:
    """Otherwise most mutants would be refused for what they have in common."""
    for seed in seeds[:4]:
        outcome = exercise(seed.data, random.Random(1))
        assert outcome.finding is None, f"{seed.name}: {outcome.finding}"
        assert not outcome.errors, f"{seed.name}: {outcome.errors[0]}"


def test_structure_finds_offsets_of_every_table(seeds: list[Seed]) -> None:
    seed = seeds[0]
    sites = list(structure(seed.data, seed.schema))
    assert {site.kind for site in sites} >= {"root", "vtable offset", "vtable entry", "offset", "length", "enum", "tag"}
    assert len(set(sites)) == len(sites)
    assert all(0 <= site.position <= len(seed.data) - site.width for site in sites)
