"""Sessions on models made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from helpers.models import ModelBuilder, add_model, model_bytes
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.manifest import Manifest, format_config
from odc_mlir.formats.package import PackageFiles, write_package
from odc_mlir.runtime import Session

Array = np.ndarray[Any, Any]


def values(*numbers: float) -> Array:
    return np.array([numbers], np.float32)


A, B = values(1, 2, 3, 4), values(10, 20, 30, 40)
SUM = values(12, 24, 36, 48)  # 2a + b


def add_session(**options: Any) -> Session:
    return Session(model_bytes(add_model()), **options)


def unary(name: str = "ABS", shape: tuple[int, ...] | None = (1, 4), **tensor: Any) -> Model:
    builder = ModelBuilder()
    x, y = builder.tensor("x", shape, **tensor), builder.tensor("y", shape, **tensor)
    builder.operator(name, [x], [y])
    return builder.finish([x], [y])


def quantised() -> Model:
    """y = x, max-pooled over one element: codes stay as they are."""
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 2, 2, 1), "int8", quant=(0.5, -1)) for name in "xy")
    options = {"padding": "valid", "stride_w": 1, "stride_h": 1, "filter_width": 1, "filter_height": 1}
    builder.operator("MAX_POOL_2D", [x], [y], options=options)
    return builder.finish([x], [y])


def save_package(path: Path, config: dict[str, str]) -> None:
    """An nnpackage of ``a + b + a`` with these settings."""
    manifest = Manifest(("model.circle",), ("circle",), ("config.cfg",))
    members = {
        "metadata/MANIFEST": manifest.to_json(),
        "metadata/config.cfg": format_config(config),
        "model.circle": model_bytes(add_model()),
    }
    write_package(PackageFiles(members, manifest, config, None, "test"), path)
