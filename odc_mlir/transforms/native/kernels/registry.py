"""Registry of kernels, and the small functions that they call and LLVM inlines.

A kernel is a function of loops over flat buffers. Several layers can call a kernel because sizes are parameters.
Options, such as the shape of a tile of registers, select the code and are part of the function's name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import i8, i16, i32, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from odc_mlir.errors import CompileError
from odc_mlir.transforms.native.kernels.loops import Loops, lanes

Options = Mapping[str, int]
Write = Callable[..., None]

Parameters = Mapping[str, Attribute]

_MODULES = ("windows", "elementwise", "rows", "moves", "recurrent")


@dataclass(frozen=True)
class Kernel:
    """Kernel. ``write(loops, helpers, **options)`` writes the body of its function.

    ``parameters(options)``: the function's parameters. ``depth``: empty if calls are not :func:`divisible`.
    """

    name: str
    parameters: Callable[[Options], Parameters]
    write: Write
    depth: tuple[str, ...] = ()

    def symbol(self, options: Options) -> str:
        """Return the name of the function for these options."""
        return "_".join((self.name, *(f"{key}{value}" for key, value in options.items())))


def kernel(**parameters: Attribute) -> Callable[[Write], Kernel]:
    """Return a decorator that turns a function into the kernel whose body it writes."""
    return kernel_by_options(lambda _: parameters)


def kernel_by_options(parameters: Callable[[Options], Parameters]) -> Callable[[Write], Kernel]:
    """Return the decorator for a kernel with parameters that depend on the options."""
    return lambda write: Kernel(write.__name__, parameters, write)


BY_PIXEL = ("starts", "owners")
"""Parameters that are buffers with one word per pixel."""


def divisible(*depth: str) -> Callable[[Kernel], Kernel]:
    """Return a decorator for a kernel whose calls can be divided into calls for parts of the pixels.

    The result has ``channels`` elements for each of ``pixels``. The kernel computes it in ``blocks`` of channels and
    tiles of ``rows`` (an option) pixels. The product of the parameters ``depth`` is the number of multiplications per
    element.
    """
    return lambda found: replace(found, depth=depth)


def find_kernel(name: str) -> Kernel:
    """Return the kernel ``name``. Raises CompileError if there is none."""
    for module in _MODULES:
        found = getattr(importlib.import_module(f"odc_mlir.transforms.native.kernels.{module}"), name, None)
        if isinstance(found, Kernel):
            return found
    raise CompileError(f"there is no kernel {name!r}")


class Helpers:
    """Small functions that kernels call, created on first use. ``dot``: the instructions that multiply bytes."""

    def __init__(self, dot: str) -> None:
        self._dot = dot
        self.made: dict[str, FuncOp] = {}

    def __getitem__(self, name: str) -> FuncOp:
        if name not in self.made:
            key = f"{name}_{self._dot}" if name in ("dot", "dot_pairs") else name
            if key not in HELPERS:
                raise CompileError(f"there is no helper {key!r}")
            parameters, write = HELPERS[key]
            loops = Loops(name, parameters, [SUMS])
            self.made[name] = loops.finish(write(loops))
        return self.made[name]


def write_kernel(found: Kernel, options: Options, helpers: Helpers) -> FuncOp:
    """Return the function of a kernel with these options."""
    loops = Loops(found.symbol(options), found.parameters(options))
    found.write(loops, helpers, **options)
    return loops.finish()


LANES = 16  # 32-bit elements of a vector; machines with shorter registers hold a vector in several registers

SUMS = lanes(LANES, i32)
CODES = lanes(LANES, i8)
WEIGHTS = lanes(4 * LANES, i8)  # four weights for each of 16 channels
_SHORTS = 16  # 16-bit elements of an AVX2 register
_REGISTER = 16  # bytes of a NEON register: the factors of four sums of four products


def _scale(w: Loops) -> SSAValue:
    """Return ``multiply(sums, q, -shift)`` of numerics.fixed.

    If ``shift`` > 0, all bits of ``round`` are set. This mask subtracts 1 from negative numbers, so that halves are
    rounded away from zero. ``half`` is ``2^shift / 2``. The product plus ``half`` must stay below 2^31.
    """
    scaled = _doubling_high(w, w["sums"], w["q"])
    sign = w.logical_and(w.shift_right(scaled, 31), w["round"])
    return w.shift_right(w.add(w.add(scaled, sign), w["half"]), w["shift"])


def _doubling_high(w: Loops, a: SSAValue, b: SSAValue) -> SSAValue:
    """Return ``(a*b + 2^30) >> 31`` for vectors of 16 numbers: multiply even and odd elements in 64 bits."""
    wide = lanes(LANES // 2, i64)
    halves = []
    for even in (True, False):
        pair = []
        for operand in (a, b):
            whole = w.bitcast(operand, wide)
            pair.append(w.shift_right(w.shift_left(whole, 32) if even else whole, 32))
        product = w.add(w.mul(*pair), 1 << 30)
        moved = w.shift_right(product, 31) if even else w.shift_left(product, 1)
        halves.append(w.bitcast(moved, SUMS))
    return w.shuffle(halves[0], halves[1], [i + (LANES if i % 2 else 0) for i in range(LANES)])


def within(w: Loops, scaled: SSAValue, limits: Sequence[SSAValue], element: Attribute) -> SSAValue:
    """Add a zero point to scaled sums, clamp and narrow them to ``element``. ``limits``: zero point, low, high."""
    zero, low, high = limits
    return w.narrow(w.least(w.most(w.add(scaled, zero), low), high), lanes(LANES, element))


def _vnni(w: Loops, name: str) -> SSAValue:
    """Return ``sums[c] + Σ x[k] * weights[c, k]`` by AVX-512 VNNI, for four unsigned bytes or two 16-bit ``x``."""
    spread = w.bitcast(w.broadcast(w.bitcast(w["x"], lanes(1, i32)), LANES), w["weights"].type)
    return w.intrinsic(f"llvm.x86.avx512.{name}.512", [w["sums"], spread, w["weights"]], SUMS)


def _portable(w: Loops, count: int, x: SSAValue) -> SSAValue:
    """Return ``sums[c] + Σ x[k] * weights[c, k]`` in portable arithmetic, for ``count`` inputs ``x`` in 32 bits."""
    sums = w["sums"]
    for k in range(count):
        column = w.shuffle(w["weights"], w["weights"], range(k, count * LANES, count))
        factor = w.broadcast(w.shuffle(x, x, [k]), LANES)
        sums = w.add(sums, w.mul(w.widen(column, SUMS), factor))
    return sums


def _shifted(w: Loops, count: int, x: SSAValue) -> SSAValue:
    """Return the result of :func:`_portable`. Shifts extract the weights from words, and no vector is permuted."""
    sums, words, bits = w["sums"], w.bitcast(w["weights"], SUMS), 32 // count
    for k in range(count):
        column = w.shift_right(w.shift_left(words, 32 - bits * (k + 1)), 32 - bits)
        sums = w.add(sums, w.mul(column, w.broadcast(w.shuffle(x, x, [k]), LANES)))
    return sums


def _madd(w: Loops, sums: SSAValue, x: SSAValue, weights: SSAValue) -> SSAValue:
    """Return ``sums[c] + x[0] * weights[2c] + x[1] * weights[2c + 1]`` for 16-bit values by AVX2's ``pmaddwd``."""
    spread = w.bitcast(w.broadcast(w.bitcast(x, lanes(1, i32)), _SHORTS // 2), lanes(_SHORTS, i16))
    parts = [
        w.intrinsic(
            "llvm.x86.avx2.pmadd.wd",
            [spread, w.shuffle(weights, weights, range(first, first + _SHORTS))],
            lanes(_SHORTS // 2, i32),
        )
        for first in (0, _SHORTS)
    ]
    return w.add(sums, w.shuffle(parts[0], parts[1], range(LANES)))


def _madd_bytes(w: Loops) -> SSAValue:
    """Return ``sums[c] + Σ x[k] * weights[c, k]`` for four unsigned bytes ``x`` by AVX2, after widening to 16 bits."""
    sums, x = w["sums"], w.widen_unsigned(w["x"], lanes(4, i16))
    for first in (0, 2):
        own = [4 * channel + first + k for channel in range(LANES) for k in range(2)]
        pairs = w.widen(w.shuffle(w["weights"], w["weights"], own), lanes(2 * LANES, i16))
        sums = _madd(w, sums, w.shuffle(x, x, (first, first + 1)), pairs)
    return sums


def _by_registers(
    w: Loops, sums: SSAValue, x: SSAValue, multiply: Callable[[SSAValue, SSAValue, SSAValue], SSAValue]
) -> SSAValue:
    """Return ``multiply(sums, x, weights)``, computed for four sums at a time. ``x`` is one register."""
    found = []
    for part in range(LANES // 4):
        own = w.shuffle(sums, sums, range(4 * part, 4 * part + 4))
        weights = w.shuffle(w["weights"], w["weights"], range(_REGISTER * part, _REGISTER * (part + 1)))
        found.append(multiply(own, x, weights))
    low, high = (w.shuffle(found[i], found[i + 1], range(8)) for i in (0, 2))
    return w.shuffle(low, high, range(LANES))


def _neon(w: Loops, name: str) -> Callable[[SSAValue, SSAValue, SSAValue], SSAValue]:
    four = lanes(4, i32)
    return lambda *operands: w.intrinsic(f"llvm.aarch64.neon.{name}.v4i32.v16i8", operands, four)


def _spread(w: Loops) -> SSAValue:
    return w.bitcast(w.broadcast(w.bitcast(w["x"], lanes(1, i32)), 4), lanes(_REGISTER, i8))


def _sdot(w: Loops) -> SSAValue:
    """Multiply by Arm's dot product of signed bytes (the feature dotprod).

    Unsigned inputs become signed by subtracting 128. The difference, 128 times the sum of the weights, is added again.
    It is computed once, because it is the same for all pixels of a tile.
    """
    sdot, register = _neon(w, "sdot"), lanes(_REGISTER, i8)
    lowered = w.xor(_spread(w), w.constant(-128, register))
    lacking = _by_registers(w, w.constant(0, SUMS), w.constant(127, register), sdot)
    lacking = _by_registers(w, lacking, w.constant(1, register), sdot)
    return w.add(_by_registers(w, w["sums"], lowered, sdot), lacking)


def _portable_pairs(w: Loops) -> SSAValue:
    return _portable(w, 2, w.widen(w["x"], lanes(2, i32)))


_SCALING: Parameters = dict.fromkeys(("sums", "q", "round", "half", "shift"), SUMS)
_BYTES: Parameters = {"sums": SUMS, "x": lanes(4, i8), "weights": WEIGHTS}
_PAIRS: Parameters = {"sums": SUMS, "x": lanes(2, i16), "weights": lanes(2 * LANES, i16)}
HELPERS: dict[str, tuple[Parameters, Callable[[Loops], SSAValue]]] = {
    "scale": (_SCALING, _scale),
    "dot_vnni": (_BYTES, lambda w: _vnni(w, "vpdpbusd")),
    "dot_madd": (_BYTES, _madd_bytes),
    "dot_usdot": (_BYTES, lambda w: _by_registers(w, w["sums"], _spread(w), _neon(w, "usdot"))),  # the feature i8mm
    "dot_sdot": (_BYTES, _sdot),
    "dot_portable": (_BYTES, lambda w: _portable(w, 4, w.widen_unsigned(w["x"], lanes(4, i32)))),
    "dot_shifts": (_BYTES, lambda w: _shifted(w, 4, w.widen_unsigned(w["x"], lanes(4, i32)))),
    "dot_pairs_vnni": (_PAIRS, lambda w: _vnni(w, "vpdpwssd")),
    "dot_pairs_madd": (_PAIRS, lambda w: _madd(w, w["sums"], w["x"], w["weights"])),
    # LLVM selects NEON's smlal for the portable code
    **dict.fromkeys(("dot_pairs_usdot", "dot_pairs_sdot", "dot_pairs_portable"), (_PAIRS, _portable_pairs)),
    "dot_pairs_shifts": (_PAIRS, lambda w: _shifted(w, 2, w.widen(w["x"], lanes(2, i32)))),
}
"""Parameters and body of each helper function: scaling, and products of four bytes or of two 16-bit values."""
