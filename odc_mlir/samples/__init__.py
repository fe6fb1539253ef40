"""Small models and data in the package, for first experiments: handwritten digits, a language model.

::

    from odc_mlir import samples

    package = odc_mlir.compile(samples.path("digits_cnn_int8.circle"))
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from odc_mlir.errors import OptionError

FILES = {
    "digits_cnn_int8.circle": "examples/digits",
    "samples.npz": "examples/digits",
    "calibration.npz": "examples/digits",
    "evaluation.npz": "examples/digits",
    "digits_cnn.circle": "examples/on_device",
    "digits_mobile_hard.circle": "examples/on_device",
    "digits_mbv2.circle": "examples/pytorch",
    "digits_mbv2.calibration.npz": "examples/pytorch",
    "digits_mbv2.evaluation.npz": "examples/pytorch",
    "stories_int8.circle": "examples/stories",
    "stories_tokenizer.bin": "examples/stories",
}
"""Folders of the samples in a clone, by name: an int8 model with inputs, float models, data."""


def path(name: str) -> Path:
    """Return the file of the sample ``name``, a key of :data:`FILES`. Raises OptionError for another name.

    ``digits_cnn_int8.circle`` takes ``samples.npz``. ``digits_mobile_hard.circle`` is quantised with
    ``calibration.npz`` and scored on ``evaluation.npz``. ``digits_mbv2.circle`` comes from PyTorch and has separate
    data.
    """
    if name not in FILES:
        raise OptionError(f"there is no sample {name!r}", hint=f"there are {', '.join(FILES)}")
    installed = Path(str(resources.files(__name__))) / "data" / name
    return installed if installed.is_file() else Path(__file__).parents[2] / FILES[name] / name
