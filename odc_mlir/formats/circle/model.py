"""Typed records of a model file, used by reader, writer, importer, exporter and runtime.

Records compare by value (arrays bit for bit, NaN equal to itself), so ``==`` checks a round trip. Bytes of constants
are memoryviews into the file and are never copied here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError, OdcError
from odc_mlir.formats.quantities import tensor_names
from odc_mlir.ops.sparse import Sparsity, same_array
from odc_mlir.ops.spec import QuantParams, Shape

LEFT_OUT = -1
"""Tensor index of an omitted operand."""

EMPTY = memoryview(b"")

INDEX_WIDTHS = MappingProxyType({"Int32Vector": "<i4", "Uint16Vector": "<u2", "Uint8Vector": "|u1"})
"""Numpy dtypes of the index vectors of a sparse level, by schema table."""


@dataclass(slots=True, eq=False)
class Quantization:
    """Quantisation parameters of a tensor as stored in the file. Arrays are empty if absent.

    ``min`` and ``max`` are calibration records. ``details`` is a (table name, fields) pair that overrides other fields.
    """

    scale: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    zero_point: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    axis: int = 0
    min: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    max: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    details: tuple[str, dict[str, Any]] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantization):
            return NotImplemented
        arrays = ("scale", "zero_point", "min", "max")
        same = self.axis == other.axis and self.details == other.details
        return same and all(same_array(getattr(self, name), getattr(other, name)) for name in arrays)

    def params(self, rank: int | None = None) -> QuantParams | None:
        """Return the affine parameters, or None without a scale. Missing zero points are 0.

        The axis is 0 for per-tensor parameters and for tensors of ``rank`` 1, because some files have biases with
        another axis. Raises ModelError for an invalid axis, or for zero points that do not fit the scales.
        """
        count = self.scale.size
        if count == 0:
            if self.zero_point.any():
                raise ModelError(f"there are zero points ({self.zero_point[0]}, …) but no scale")
            return None
        if self.zero_point.size not in (0, count):
            raise ModelError(f"{count} scales but {self.zero_point.size} zero points; their numbers must agree")
        zero_points = self.zero_point.tolist() or [0] * count
        axis = 0 if count == 1 or rank == 1 else self.axis
        if axis < 0 or (rank is not None and axis >= max(rank, 1)):
            raise ModelError(f"quantized_dimension {self.axis} does not exist in a tensor of rank {rank}")
        return QuantParams(tuple(self.scale.tolist()), tuple(zero_points), axis)


@dataclass(slots=True)
class VariantSubType:
    """Element type of a variant tensor."""

    dtype: str
    shape: tuple[int, ...] | None
    has_rank: bool = False


@dataclass(slots=True)
class Tensor:
    """A tensor. ``buffer`` is an index into ``Model.buffers``. ``shape`` is None if the file has no shape."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    shape_signature: tuple[int, ...] | None = None
    buffer: int = 0
    quantization: Quantization | None = None
    is_variable: bool = False
    sparsity: Sparsity | None = None
    has_rank: bool = False
    variant_tensors: tuple[VariantSubType, ...] = ()
    compression: str = "none"

    @property
    def effective_shape(self) -> Shape | None:
        """Shape with None for unknown dimensions (-1 in the signature or in the shape), or None without rank."""
        if self.shape is None:
            return None
        # Some files have an empty signature and a shape. The reader rejects all other differences in rank.
        dims = self.shape_signature if self.shape_signature else self.shape
        return tuple(None if -1 in (dim, seen) else seen for dim, seen in zip(dims, self.shape, strict=True))

    @property
    def says_nothing(self) -> bool:
        """True if a tensor without dimensions may have an unknown shape. Files store scalars in the same way.

        Only ``has_rank``, which few writers set, identifies a scalar reliably.
        """
        return not self.shape and not self.has_rank

    @property
    def is_empty(self) -> bool:
        return self.shape is not None and 0 in self.shape

    def quant_params(self) -> QuantParams | None:
        """Return the affine parameters, checked against the shape. Raises ModelError with the tensor's name."""
        if self.quantization is None:
            return None
        shape = self.effective_shape
        try:
            params = self.quantization.params(None if shape is None else len(shape))
        except ModelError as error:
            raise ModelError(error.message, tensor=self.name) from None
        if (
            params is not None
            and not params.per_tensor
            and shape
            and shape[params.axis] not in (None, len(params.scales))
        ):
            raise ModelError(
                f"{len(params.scales)} scales along dimension {params.axis}, which has extent {shape[params.axis]}",
                tensor=self.name,
            )
        return params


@dataclass(slots=True)
class Operator:
    """One operator in execution order. ``inputs`` may contain :data:`LEFT_OUT`.

    An operator that our schema lacks is called ``BUILTIN_<code>``. ``options`` has all live fields of the table
    ``options_type``: numbers, strings, enum names in lower case, tuples, and bytes for vectors of ubyte. Without a
    table it is empty.
    """

    name: str
    version: int = 1
    custom_code: str = ""
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    options_type: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    custom_options: memoryview = EMPTY
    custom_options_format: str = "flexbuffers"
    mutating_variable_inputs: tuple[bool, ...] = ()
    intermediates: tuple[int, ...] = ()
    debug_metadata_index: int = -1

    @property
    def label(self) -> str:
        """Name of the operator's kind for users: ``CONV_2D``, ``CUSTOM(Erf)``."""
        return f"{self.name}({self.custom_code})" if self.custom_code else self.name


@dataclass(slots=True)
class SubGraph:
    """Tensors, and operators on them. Tensor indices are local to the subgraph."""

    name: str | None
    tensors: list[Tensor] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    operators: list[Operator] = field(default_factory=list)
    debug_metadata_index: int = -1

    def named(self) -> list[Tensor]:
        """Return the tensors with distinct names. All other code uses these names."""
        names = tensor_names([tensor.name for tensor in self.tensors])
        pairs = zip(self.tensors, names, strict=True)
        return [tensor if tensor.name == name else replace(tensor, name=name) for tensor, name in pairs]

    def computed(self) -> frozenset[int]:
        """Return the indices of tensors with run-time values: inputs, operator results and variables."""
        made = {index for operator in self.operators for index in operator.outputs}
        variables = {index for index, tensor in enumerate(self.tensors) if tensor.is_variable}
        return frozenset(made | variables | set(self.inputs))


@dataclass(slots=True)
class Signature:
    """A named entry point: user-visible names for inputs and outputs of one subgraph, in the file's order."""

    key: str
    subgraph: int
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Model:
    """A model file. A model with ``unknown`` parts, which the records lack, must not be run or written."""

    schema: Literal["circle", "tflite"] = "circle"
    version: int = 0
    description: str | None = None
    subgraphs: list[SubGraph] = field(default_factory=list)
    buffers: list[memoryview] = field(default_factory=lambda: [EMPTY])
    metadata: list[tuple[str, int]] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    metadata_buffer: tuple[int, ...] = ()
    unknown: list[str] = field(default_factory=list)
    # Origin of the model: a file, or a member of a package with the files ``siblings``.
    path: str | None = field(default=None, compare=False)
    siblings: Mapping[str, bytes] | None = field(default=None, compare=False, repr=False)

    def metadata_bytes(self, name: str) -> memoryview | None:
        return next((self.buffers[buffer] for key, buffer in self.metadata if key == name), None)

    def without_metadata(self, name: str) -> Model:
        """Return a copy without the metadata ``name``."""
        return replace(self, metadata=[entry for entry in self.metadata if entry[0] != name])

    @property
    def host_signatures(self) -> list[str]:
        """Names of signatures that stay as they are: only the first subgraph is quantised and compiled."""
        return [record.key for record in self.signatures if record.subgraph]

    def subgraph_of(self, signature: str, wrong: type[OdcError]) -> int:
        """Return the subgraph of ``signature``. Raises ``wrong`` for an unknown signature."""
        for record in self.signatures:
            if record.key == signature:
                return record.subgraph
        known = ", ".join(repr(record.key) for record in self.signatures) or "none"
        raise wrong(f"the model has no signature {signature!r}", hint=f"it has {known}")

    def constants(self, subgraph_index: int) -> dict[int, memoryview]:
        """Return the bytes of all constants of a subgraph by tensor index.

        A tensor is constant if its buffer has bytes or if it has no elements. Graph inputs, operator results and
        variables are never constant.
        """
        subgraph = self.subgraphs[subgraph_index]
        computed = subgraph.computed()
        return {
            index: self.buffers[tensor.buffer]
            for index, tensor in enumerate(subgraph.tensors)
            if index not in computed and (len(self.buffers[tensor.buffer]) or tensor.is_empty)
        }

    def constant(self, subgraph_index: int, tensor_index: int) -> memoryview | None:
        """Return the bytes of one constant tensor, or None. For several constants, use :meth:`constants`."""
        return self.constants(subgraph_index).get(tensor_index)
