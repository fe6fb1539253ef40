"""Quantisation schemes: which element types activations, weights and biases get, and what operators fix.

Two families share the names that users give. ``one`` is ONE's: asymmetric uint8, and int16 throughout. ``tflite`` is
TensorFlow Lite's: int8 with symmetric weights, and int16 activations with int8 weights. The families differ in the
parameters of operators whose results have a known range; see :data:`FIXED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from odc_mlir.errors import OptionError
from odc_mlir.isa.fields import ACCUMULATOR_BITS, LARGEST_WIDE_FACTOR
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.quantizer.policy.readers import NPU

GRANULARITIES = ("channel", "tensor")
WEIGHT_FORMS = ("symmetric", "asymmetric")
TFLITE = "tflite"
FLOAT = "float"  # the precision of an operator that is to stay as it is
# An NPU adds biases of 32 bits to sums of 16-bit codes too. Half of that leaves room to correct them. Accumulators must
# hold products beside any bias.
_LARGEST_BIAS_OF_NPUS = 1 << 30
_LARGEST_SUM_OF_NPUS = (1 << ACCUMULATOR_BITS - 1) - (1 << 31)
# One step of such a sum may be nearly as many steps of the result as scales can bring it to.
_MOST_STEPS_OF_NPUS = LARGEST_WIDE_FACTOR - 1


@dataclass(frozen=True, slots=True)
class Scheme:
    """What a model or an operator is quantised to.

    ``activations`` and ``bias`` are None in schemes that touch weights only. ``granularity`` is that of weights:
    activations always have one scale.
    ``reader``: what the file is for, whose kernels have to take the codes; empty for those of this project.
    """

    name: str
    family: str
    activations: str | None
    weights: str
    bias: str | None
    symmetric_activations: bool
    symmetric_weights: bool
    granularity: str = "channel"
    reader: str = ""

    @property
    def weights_only(self) -> bool:
        return self.activations is None

    def weights_along(self, axis: int | None) -> str:
        """The element type of weights whose kernel takes scales along ``axis``, or a single one (None).

        One scale for everything is too coarse for 4 bits, which the kernels of recurrent cells do not take either.
        """
        return "int8" if axis is None and self.weights == "int4" else self.weights

    @property
    def largest_bias(self) -> int:
        """The largest code that a bias may have; raises KeyError for schemes without biases."""
        largest = DTYPES[self.bias or ""].range[1]
        return min(largest, _LARGEST_BIAS_OF_NPUS) if self._has_wide_sums_on_npu else largest

    @property
    def largest_sum(self) -> int | None:
        """The largest sum of products without bias, None where there is nothing to mind."""
        return _LARGEST_SUM_OF_NPUS if self._has_wide_sums_on_npu else None

    @property
    def most_steps(self) -> int | None:
        """How many steps of a result one step of a sum of products may be, None where there is nothing to mind."""
        return _MOST_STEPS_OF_NPUS if self._has_wide_sums_on_npu else None

    @property
    def _has_wide_sums_on_npu(self) -> bool:
        return self.reader == NPU and self.bias == "int64"

    def fixed(self, table: str) -> QuantParams | None:
        """Parameters of a result that the operator fixes, None where it takes them from its range."""
        if self.activations is None:
            return None
        by_family = FIXED.get((table, self.activations), {})
        return by_family.get(self.family) or by_family.get("")

    def read_by(self, reader: str) -> Scheme:
        """The scheme for files that ``reader`` is to run: what it fixes is as TensorFlow Lite has it."""
        return replace(self, reader=reader, family=TFLITE) if reader else self

    def with_options(self, *, granularity: str | None = None, weights: str | None = None) -> Scheme:
        """The scheme with another granularity or form of weights; raises OptionError where that cannot be."""
        granularity = granularity or self.granularity
        if granularity not in GRANULARITIES:
            raise OptionError(f"unknown granularity {granularity!r}", hint=f"use one of {', '.join(GRANULARITIES)}")
        if weights is not None and weights not in WEIGHT_FORMS:
            raise OptionError(f"unknown weight form {weights!r}", hint=f"use one of {', '.join(WEIGHT_FORMS)}")
        if granularity == "tensor" and (self.weights_only or self.weights == "int16"):
            raise OptionError(
                f"scheme {self.name!r} has one scale per channel; granularity 'tensor' is not possible",
                hint="omit the granularity",
            )
        symmetric = self.symmetric_weights if weights is None else weights == "symmetric"
        if not symmetric and self.weights != "uint8":
            raise OptionError(
                f"weights of scheme {self.name!r} are symmetric; only uint8 ones can be asymmetric",
                hint="use the scheme 'uint8'",
            )
        return replace(self, granularity=granularity, symmetric_weights=symmetric)


def _one(scale: float, zero_point: int) -> QuantParams:
    return QuantParams((scale,), (zero_point,))


# (what an operator fixes, element type) -> family -> parameters; the family "" is any. Each scale is a float32.
FIXED: Mapping[tuple[str, str], Mapping[str, QuantParams]] = {
    ("logistic", "uint8"): {"": _one(1 / 256, 0)},
    ("logistic", "int8"): {"": _one(1 / 256, -128)},
    ("logistic", "int16"): {"": _one(1 / 32768, 0)},
    ("tanh", "uint8"): {"": _one(1 / 128, 128)},
    ("tanh", "int8"): {"": _one(1 / 128, 0)},
    ("tanh", "int16"): {"": _one(1 / 32768, 0)},
    ("softmax", "uint8"): {"one": _one(0.003921568859368563, 0), "": _one(1 / 256, 0)},  # 1/255
    ("softmax", "int8"): {"": _one(1 / 256, -128)},
    ("softmax", "int16"): {"one": _one(3.0518509447574615e-05, 0), "": _one(1 / 32768, 0)},  # 1/32767
    ("log_softmax", "uint8"): {"": _one(1 / 16, 255)},
    ("log_softmax", "int8"): {"": _one(1 / 16, 127)},
    ("l2_normalization", "uint8"): {"": _one(1 / 128, 128)},
    ("l2_normalization", "int8"): {"": _one(1 / 128, 0)},
}

_SCHEMES = (
    Scheme("uint8", "one", "uint8", "uint8", "int32", symmetric_activations=False, symmetric_weights=False),
    Scheme(
        "int8",
        "tflite",
        "int8",
        "int8",
        "int32",
        symmetric_activations=False,
        symmetric_weights=True,
    ),
    Scheme(
        "int8x4",
        "tflite",
        "int8",
        "int4",
        "int32",
        symmetric_activations=False,
        symmetric_weights=True,
    ),
    Scheme("int16", "one", "int16", "int16", "int64", symmetric_activations=True, symmetric_weights=True),
    Scheme(
        "int16x8",
        "tflite",
        "int16",
        "int8",
        "int64",
        symmetric_activations=True,
        symmetric_weights=True,
    ),
    *(
        Scheme(f"{dtype}_wo", "one", None, dtype, None, symmetric_activations=True, symmetric_weights=True)
        for dtype in ("int8", "int16", "int4")
    ),
)
SCHEMES: Mapping[str, Scheme] = {scheme.name: scheme for scheme in _SCHEMES}
PRECISIONS = (*(scheme.name for scheme in _SCHEMES if not scheme.weights_only), FLOAT)


def scheme(name: str) -> Scheme:
    """The scheme called ``name``; raises OptionError for an unknown one."""
    try:
        return SCHEMES[name]
    except KeyError:
        raise OptionError(f"unknown quantisation scheme {name!r}", hint=f"use one of {', '.join(SCHEMES)}") from None
