"""Models for the tests, and a cache of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from networks import layers
from odc_mlir.formats.circle.writer import write_model


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the judgements of all tests in one cache, which is not the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ODC_CACHE_DIR", str(folder))
        patch.setenv("ODC_PLUGIN_TIMEOUT_S", "120")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a float model that is faster in OpenVINO than in numpy: three layers with activations."""
    path = tmp_path_factory.mktemp("models") / "net.circle"
    path.write_bytes(write_model(layers()))
    return path
