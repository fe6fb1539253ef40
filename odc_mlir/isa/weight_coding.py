"""Coding of weights, which ``wload`` decodes. ``docs/npu.md`` describes the format in section "wload".

A stream consists of a header and codewords, most significant bit first. The codeword of a byte depends on the rank of
its distance from a centre. The number of codewords of each length defines a code. No symbol table is therefore needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import SimulationError
from odc_mlir.isa.table.transfers import CODINGS

LONGEST_BITS = 12  # longest codeword
RANKS = 256
RUNS = tuple(2 << i for i in range(6))  # lengths of runs of the centre with codewords
ESCAPE_QUOTIENT = 4  # rice: quotients >= 4 are coded as four ones and the whole rank
WORTH_RUNS = 0.3  # least share of the centre for which runs are tried
_WINDOWS = 1 << LONGEST_BITS
_RICE_PARAMETERS = 8
_RICE_HEADER_BITS = 11

Bytes = NDArray[np.uint8]
_NO_RUNS = np.zeros(len(RUNS), np.int64)  # counts, bits or words of codes without runs
_REPEATS = np.array([1] * RANKS + list(RUNS))  # number of weights of each symbol: ranks, then runs


class Coded(NamedTuple):
    """Weights in the coding named ``coding``."""

    coding: str
    data: bytes


class _Code(NamedTuple):
    """Header (value, number of bits), and bits and value of each symbol's codeword (0 bits: none)."""

    header: tuple[int, int]
    bits: NDArray[np.int64]
    words: NDArray[np.int64]


def encode(weights: bytes, codings: Collection[str] = CODINGS) -> Coded:
    """Encode ``weights`` in the shortest form: raw bytes or one of ``codings``."""
    best = _shortest(weights, codings)
    return Coded("raw", weights) if best is None else Coded(best.coding, _pack(best.code(), best.symbols()))


def coded_bytes(weights: bytes, codings: Collection[str] = CODINGS) -> int:
    """Return the size of the data that :func:`encode` returns."""
    best = _shortest(weights, codings)
    return len(weights) if best is None else best.size


class _Form(NamedTuple):
    coding: str
    code: Callable[[], _Code]
    symbols: Callable[[], NDArray[np.int64]]
    size: int


def _shortest(weights: bytes, codings: Collection[str]) -> _Form | None:
    """Return the shortest form, or None if raw bytes are shortest. Computes lengths only, not codewords."""
    values = np.frombuffer(weights, np.uint8)
    counts = np.bincount(values, minlength=256)
    forms: list[_Form] = []
    mode = int(counts.argmax())
    mean = _mean(counts)
    if "huffman" in codings and counts[mode] > WORTH_RUNS * len(values):
        symbols = _RANKS[mode][values]
        joined = _join_runs(symbols)
        forms.append(_huffman(mode, np.bincount(joined, minlength=len(_REPEATS)), lambda: joined))
        forms.append(_huffman(mode, np.bincount(symbols, minlength=len(_REPEATS)), lambda: symbols))
    by_rank = counts[_BYTES[mean]]
    if "rice" in codings:
        bits = _rice_bits() @ by_rank + _RICE_HEADER_BITS
        k = int(bits.argmin())
        forms.append(_Form("rice", lambda: _rice(mean, k), lambda: _RANKS[mean][values], -(-int(bits[k]) // 8)))
    most = min([len(weights) - 1, *(form.size for form in forms)])
    if "huffman" in codings and _least_bytes(by_rank) <= most:
        forms.append(_huffman(mean, np.concatenate((by_rank, _NO_RUNS)), lambda: _RANKS[mean][values]))
    best = min(forms, key=lambda form: form.size, default=None)
    return best if best is not None and best.size < len(weights) else None


def _least_bytes(counts: NDArray[np.int64]) -> int:
    """Return the entropy of symbols with these counts in bytes, a lower bound for any code."""
    used = counts[counts > 0]
    bits = float(used @ np.log2(used.sum() / used))
    return int(bits * (1 - 1e-9) / 8)


def _mean(counts: NDArray[np.int64]) -> int:
    """Return the circular mean of bytes, with 255 and 0 as neighbours. It suits signed and unsigned codes."""
    x, y = _CIRCLE @ counts
    return round(math.atan2(int(y), int(x)) * 128 / math.pi) & 0xFF


def _rank_of() -> NDArray[np.int64]:
    distance = np.arange(256)
    distance[128:] -= 256
    return np.where(distance >= 0, 2 * distance, -2 * distance - 1)


_DISTANCES = np.argsort(_rank_of())  # distance of each rank from the centre, as a byte: 0, -1, 1, -2, ...
_BYTES = (np.arange(256)[:, None] + _DISTANCES) & 0xFF  # [centre, rank] -> byte
_RANKS = np.argsort(_BYTES, axis=1)  # [centre, byte] -> rank
_ANGLES = np.arange(256) * (math.pi / 128)
_CIRCLE = np.rint(np.stack((np.cos(_ANGLES), np.sin(_ANGLES))) * (1 << 20)).astype(np.int64)


@cache
def _rice_bits() -> NDArray[np.int64]:
    rank = np.arange(RANKS)
    rows = [(rank >> k) + 1 + k for k in range(_RICE_PARAMETERS)]
    return np.array([np.where(rank >> k < ESCAPE_QUOTIENT, row, LONGEST_BITS) for k, row in enumerate(rows)])


def _rice(centre: int, k: int) -> _Code:
    rank = np.arange(RANKS)
    quotient = rank >> k
    ones = (2 << quotient.clip(max=ESCAPE_QUOTIENT)) - 2  # as many ones as the quotient, then a zero
    words = np.where(quotient < ESCAPE_QUOTIENT, ones << k | rank & ((1 << k) - 1), 0xF00 | rank)
    bits = _rice_bits()[k]
    return _Code(
        (centre << 3 | k, _RICE_HEADER_BITS), np.concatenate((bits, _NO_RUNS)), np.concatenate((words, _NO_RUNS))
    )


def _huffman(centre: int, counts: NDArray[np.int64], symbols: Callable[[], NDArray[np.int64]]) -> _Form:
    bits = _lengths(counts)
    header = _huffman_header(centre, bits)
    size = -(-(header[1] + int(bits @ counts)) // 8)
    return _Form("huffman", lambda: _Code(header, bits, _canonical(bits)), symbols, size)


def _lengths(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return codeword lengths that increase with the rank, by Huffman's algorithm on decreasing counts."""
    used = max(int(np.flatnonzero(counts[:RANKS])[-1]) + 1 if counts[:RANKS].any() else 1, 2)
    weights = _falling(counts[:used].tolist())
    runs = [index for index in range(RANKS, len(counts)) if counts[index]]
    bits = np.zeros(len(_REPEATS), np.int64)
    if not runs:  # the counts fall already
        bits[:used] = _depths(weights)
        return bits
    order = sorted([*range(used), *runs], key=lambda i: -(weights[i] if i < used else float(counts[i])))
    bits[order] = _depths([weights[i] if i < used else float(counts[i]) for i in order])
    return bits


def _falling(counts: list[int]) -> list[float]:
    """Return the best non-increasing positive approximation of ``counts``, by averaging increasing counts."""
    totals: list[float] = []
    sizes: list[int] = []
    before, last = math.inf, 1  # a first group that no later group joins
    for count in counts:
        total, size = count or 0.01, 1
        while before * size <= total * last:
            total += before
            size += last
            before, last = totals.pop(), sizes.pop()
        totals.append(before)
        sizes.append(last)
        before, last = total, size
    totals.append(before)
    sizes.append(last)
    found: list[float] = []
    for total, size in zip(totals[1:], sizes[1:], strict=True):
        found += [total / size] * size
    return found


def _depths(weights: list[float]) -> list[int]:
    """Return increasing Huffman code lengths, at most :data:`LONGEST_BITS`, of two or more decreasing weights."""
    count = len(weights)
    if weights[0] < weights[-1] + weights[-2]:  # all leaves are joined before trees, so depths differ by at most one
        shallow = count.bit_length() - 1
        deeper = 2 * (count - (1 << shallow))
        return _limited([0] * shallow + [count - deeper, deeper])
    leaves, trees = [*weights[::-1], math.inf], [math.inf] * count  # weights of subtrees
    of_leaves, of_trees = [0] * count, [0] * (count - 1)  # the tree that each leaf or tree becomes part of
    leaf = tree = 0  # the first leaf and tree without a parent
    for made in range(count - 1):
        total = 0.0
        for _ in (0, 1):
            if leaves[leaf] <= trees[tree]:
                of_leaves[leaf] = made
                total += leaves[leaf]
                leaf += 1
            else:
                of_trees[tree] = made
                total += trees[tree]
                tree += 1
        trees[made] = total
    depth = [1] * (count - 1)  # depth of the children of each tree
    for tree in range(count - 3, -1, -1):
        depth[tree] = depth[of_trees[tree]] + 1
    return _limited(np.bincount(np.array(depth)[of_leaves]).tolist())


def _limited(found: list[int]) -> list[int]:
    """Return increasing code lengths within the limit. ``found`` is the number of codes per length."""
    many = (found + [0] * (LONGEST_BITS + 1))[: LONGEST_BITS + 1]
    many[LONGEST_BITS] += sum(found[LONGEST_BITS + 1 :])
    excess = sum(n << (LONGEST_BITS - bits) for bits, n in enumerate(many)) - _WINDOWS
    while excess > 0:
        bits = max(b for b in range(1, LONGEST_BITS) if many[b])
        many[bits] -= 1
        many[bits + 1] += 1
        excess -= 1 << (LONGEST_BITS - bits - 1)
    while excess < 0:  # code space remains: shorten codes that fit
        bits = next(b for b in range(2, LONGEST_BITS + 1) if many[b] and 1 << (LONGEST_BITS - b) <= -excess)
        many[bits] -= 1
        many[bits - 1] += 1
        excess += 1 << (LONGEST_BITS - bits)
    return [bits for bits, n in enumerate(many) for _ in range(n)]


def _canonical(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    order = _code_order(bits)
    sizes = bits[order]
    ends = np.cumsum(1 << (LONGEST_BITS - sizes))
    words = np.zeros(len(bits), np.int64)
    words[order] = (ends - (1 << (LONGEST_BITS - sizes))) >> (LONGEST_BITS - sizes)
    return words


def _huffman_header(centre: int, bits: NDArray[np.int64]) -> tuple[int, int]:
    of_all, of_runs = np.bincount(bits, minlength=LONGEST_BITS + 1).tolist(), bits[RANKS:].tolist()
    used = [size for size in range(1, LONGEST_BITS + 1) if of_all[size]]
    shortest, longest = used[0], used[-1]
    value, length = centre, 8

    def put(number: int, width: int) -> None:
        nonlocal value, length
        value, length = value << width | number, length + width

    runs = any(of_runs)
    put(runs, 1)
    put(shortest, 4)
    put(longest, 4)
    for run in of_runs if runs else ():
        put(run, 4)
    for size in range(shortest, longest):
        put(of_all[size] - of_runs.count(size), _count_bits(size))
    return value, length


def _code_order(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    symbols = np.arange(len(bits))
    order = np.lexsort((symbols, symbols < RANKS, bits))
    return order[bits[order] > 0]


def _count_bits(size: int) -> int:
    return min(size, 8) + 1


def _join_runs(symbols: NDArray[np.int64]) -> NDArray[np.int64]:
    """Replace repetitions of rank 0 by runs: the longest run as often as possible, then shorter runs."""
    zero = symbols == 0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], zero, [False])).astype(np.int8)))
    starts, sizes = edges[::2], edges[1::2] - edges[::2]
    longest = len(RUNS)
    whole, rest = sizes >> longest, sizes & ((1 << longest) - 1)
    needed = np.ones(len(symbols), np.int64)
    needed[zero] = 0
    needed[starts] = whole + sum((rest >> bit & 1) for bit in range(longest))
    ends = np.cumsum(needed)
    made = np.zeros(int(ends[-1]), np.int64)
    made[ends[~zero] - 1] = symbols[~zero]
    place = ends[starts] - needed[starts]
    first = np.repeat(place - (np.cumsum(whole) - whole), whole)
    made[first + np.arange(len(first))] = RANKS + longest - 1
    place = place + whole
    for bit in range(longest - 1, -1, -1):
        chosen = (rest >> bit & 1) > 0
        made[place[chosen]] = RANKS + bit - 1 if bit else 0
        place = place + chosen
    return made


def _pack(code: _Code, symbols: NDArray[np.int64]) -> bytes:
    value, length = code.header
    pad = -length % 8
    head = (value << pad).to_bytes((length + pad) // 8, "big")
    bits = code.bits[symbols]
    ends = np.cumsum(bits) + length
    starts = ends - bits
    total = int(ends[-1])
    placed = (code.words[symbols] << (64 - (starts & 31) - bits)).view(np.uint64)
    index, count = starts >> 5, total // 32 + 2
    words = np.bincount(index, (placed >> np.uint64(32)).astype(np.float64), count)  # codewords share no bit, so
    words += np.bincount(index + 1, (placed & np.uint64(0xFFFFFFFF)).astype(np.float64), count)  # sums are exact
    body = bytearray(words.astype(np.uint64).astype(">u4").tobytes()[: -(-total // 8)])
    for position, byte in enumerate(head):
        body[position] |= byte
    return bytes(body)


def decode(coding: str, data: bytes, count: int) -> Bytes:
    """Decode ``count`` weights. Raises SimulationError for a malformed stream or nonzero padding."""
    if coding == "raw":
        if len(data) != count:
            raise SimulationError(f"{len(data)} raw bytes cannot give {count} weights")
        return np.frombuffer(data, np.uint8)
    reader = _Bits(data)
    centre = reader.take(8)
    symbols, lengths = _rice_windows(reader) if coding == "rice" else _huffman_windows(reader)
    places, found = _decode_codewords(data, reader.position, symbols, lengths)
    repeats = _REPEATS[found]
    total = np.cumsum(repeats)
    last = int(np.searchsorted(total, count))
    if last >= len(total) or total[last] != count:
        given = int(total[-1]) if len(total) else 0
        if given > count:
            raise SimulationError(f"a run of coded weights ends after the last of {count}")
        raise SimulationError(f"{len(data)} coded bytes give {given} weights, not {count}")
    end = int(places[last] + 1)
    if int.from_bytes(data[end // 8 :], "big") & ((1 << (8 * (len(data) - end // 8) - end % 8)) - 1):
        raise SimulationError(f"bits after the last of {count} coded weights are set")
    found = found[: last + 1]
    values = np.where(found < RANKS, _DISTANCES[found % RANKS], 0).astype(np.uint8)
    return np.repeat(values + np.uint8(centre), repeats[: last + 1])


class _Bits:
    def __init__(self, data: bytes) -> None:
        self._head = int.from_bytes(data[:32].ljust(32, b"\0"), "big")
        self._limit = 8 * len(data)
        self.position = 0

    def take(self, width: int) -> int:
        self.position += width
        if self.position > self._limit:
            raise SimulationError("the header of coded weights is cut off")
        return self._head >> (256 - self.position) & ((1 << width) - 1)


Windows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Symbol and length of the first codeword for each value of the next LONGEST_BITS bits (length 0: none)."""


def _rice_windows(reader: _Bits) -> Windows:
    code = _rice(0, reader.take(3))
    symbols, lengths = np.zeros(_WINDOWS, np.int64), np.zeros(_WINDOWS, np.int64)
    bits = code.bits[:RANKS]
    starts = code.words[:RANKS] << (LONGEST_BITS - bits)
    widths = 1 << (LONGEST_BITS - bits)
    index = np.repeat(starts - (np.cumsum(widths) - widths), widths) + np.arange(int(widths.sum()))
    symbols[index], lengths[index] = np.repeat(np.arange(RANKS), widths), np.repeat(bits, widths)
    return symbols, lengths


def _huffman_windows(reader: _Bits) -> Windows:
    runs, shortest, longest = reader.take(1), reader.take(4), reader.take(4)
    if not 1 <= shortest <= longest <= LONGEST_BITS:
        raise SimulationError(f"codewords of coded weights have {shortest} to {longest} bits, allowed: 1 to 12")
    of_runs = [reader.take(4) if runs else 0 for _ in RUNS]
    if any(size and not shortest <= size <= longest for size in of_runs):
        raise SimulationError(f"a run of coded weights has a codeword outside {shortest} to {longest} bits")
    many = [reader.take(_count_bits(size)) for size in range(shortest, longest)]
    left = _WINDOWS - sum(n << (LONGEST_BITS - size) for size, n in enumerate(many, shortest))
    left -= sum(1 << (LONGEST_BITS - size) for size in of_runs if size)
    many.append(left >> (LONGEST_BITS - longest))
    if left < 0 or sum(many) > RANKS:
        raise SimulationError(f"the code of coded weights has {sum(many)} codewords or more than its lengths allow")
    ranks = np.repeat(np.arange(shortest, longest + 1), many)
    bits = np.concatenate((ranks, np.zeros(RANKS - len(ranks), np.int64), np.array(of_runs, np.int64)))
    order = _code_order(bits)
    sizes = bits[order]
    widths = 1 << (LONGEST_BITS - sizes)
    return np.repeat(order, widths), np.repeat(sizes, widths)


def _decode_codewords(data: bytes, start: int, symbols: NDArray[np.int64], lengths: NDArray[np.int64]) -> Windows:
    """Return (last bit, symbol) of every codeword from bit ``start`` up to the end or an invalid codeword.

    Codewords are looked up at all bit positions together. Then groups of eight codeword steps are merged to save time.
    """
    padded = np.frombuffer(data + b"\0\0", np.uint8).astype(np.int32)
    words = padded[:-2] << 16 | padded[1:-1] << 8 | padded[2:]
    windows = (words[:, None] >> np.arange(12, 4, -1, dtype=np.int32) & (_WINDOWS - 1)).reshape(-1)
    size = len(windows)
    step = lengths.astype(np.int32)[windows]
    follow = np.arange(size, dtype=np.int32) + step
    follow[(step == 0) | (follow > size)] = size + 1
    follow = np.append(follow, np.array([size + 1, size + 1], np.int32))
    twice = follow[follow]
    four = twice[twice]
    jumps = memoryview(four[four])
    heads = []
    place = start
    while place < size:
        heads.append(place)
        place = jumps[place]
    columns = [np.array(heads, np.int32)]
    for _ in range(7):
        columns.append(follow[columns[-1]])
    places = np.stack(columns, 1).reshape(-1)
    places = places[follow[places] <= size]
    return follow[places] - 1, symbols[windows[places]]
