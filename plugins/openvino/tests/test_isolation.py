"""Other targets with this plugin absent, whole, and broken in several ways: they give the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import odc_mlir
from networks import sample

PLUGIN = Path(__file__).parents[1]
PROGRAM = """
import hashlib, sys
import odc_mlir
from odc_mlir.plugins import registry
from odc_mlir.runtime.devices import attached
from odc_mlir.formats.package import write_package
model, target = sys.argv[1:]
package = odc_mlir.compile(model, target=target)
data = b"".join(name.encode() + bytes(value) for name, value in sorted(package.files.members.items()))
names, problems = attached()
plugins = [source.target for source in registry.entries(registry.TARGETS)]
print(target, hashlib.sha256(data).hexdigest(), "cpu" in names, "openvino" in plugins, bool(problems))
"""
BROKEN = {
    "raises": "raise RuntimeError('no licence')\n",
    "exits": "raise SystemExit(3)\n",
    "lacks": "from odc_mlir.plugins import a_door_of_another_version\n",
    "ends": "import os; os._exit(0)\n",
    "aborts": "import os; os.abort()\n",
    "sleeps": "import time; time.sleep(100)\n",
}


def compiled(tmp_path: Path, model: Path, target: str, folders: list[Path], **variables: str) -> list[str]:
    """Compile in a Python that sees only these folders; return the package's digest and what it sees of plugins."""
    environment = {"PATH": os.environ["PATH"], "ODC_CACHE_DIR": str(tmp_path / "cache"), **variables}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, str(model), target],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.fixture
def bare(tmp_path: Path) -> list[Path]:
    """Return folders with all that is installed but this plugin."""
    (tmp_path / "bare").mkdir()
    found: dict[str, Path] = {}
    for site in [Path(place) for place in sys.path if place.endswith("site-packages")]:
        found = {entry.name: entry for entry in site.iterdir() if "odc_" not in entry.name} | found
    for name, entry in found.items():
        (tmp_path / "bare" / name).symlink_to(entry)
    return [Path(odc_mlir.__file__).parents[1], tmp_path / "bare"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with a copy of this plugin."""
    shutil.copytree(PLUGIN / "odc_openvino", tmp_path / "site" / "odc_openvino")
    facts = tmp_path / "site" / "odc_openvino-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: odc-openvino\nVersion: 0.1\n")
    names = {
        "targets": "openvino = odc_openvino.target:describe",
        "devices": "openvino = odc_openvino.device:open_device",
    }
    (facts / "entry_points.txt").write_text("".join(f"[odc_mlir.{group}]\n{line}\n" for group, line in names.items()))
    return tmp_path / "site"


@pytest.mark.parametrize("target", ["cpu", "npu-256"])
def test_other_targets_are_the_same(
    target: str, tmp_path: Path, model: Path, bare: list[Path], installed: Path
) -> None:
    if target != "cpu":  # a quantised model
        quantised = odc_mlir.quantize(model, calibration=[[sample(seed)] for seed in range(4)])
        model = tmp_path / "int8.circle"
        model.write_bytes(quantised.to_circle())
    absent = compiled(tmp_path, model, target, bare)
    assert absent[2:] == ["True", "False", "False"]
    whole = compiled(tmp_path, model, target, bare, ODC_PLUGIN_PATH=str(installed), ODC_PLUGIN_TIMEOUT_S="60")
    assert whole == [*absent[:3], "True", "False"]
    for text in BROKEN.values():
        for name in ("target", "device", "compiler", "machines"):
            (installed / "odc_openvino" / f"{name}.py").write_text(text)
        seconds = "2" if "sleep" in text else "60"
        broken = compiled(tmp_path, model, target, bare, ODC_PLUGIN_PATH=str(installed), ODC_PLUGIN_TIMEOUT_S=seconds)
        assert broken == [*absent[:2], *broken[2:3], "True", "True"]


def test_importing_openvino_neither_forks_nor_loads_telemetry() -> None:
    """A fork during the import can make products of other threads wait forever."""
    code = (
        "import os, sys\nforks = []\nos.register_at_fork(before=lambda: forks.append(1))\n"
        "from odc_openvino import machines\nmachines.core()\n"
        "sys.exit(bool(forks) or 'openvino_telemetry' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "CI"}  # it turns telemetry off
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
