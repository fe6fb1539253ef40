"""One step of a transformer's decoder on int8 codes: a token attends to cached keys and values and joins them."""

from __future__ import annotations

import numpy as np


def _q(shape: str, scale: float, zero: int = 0) -> str:
    return f"tensor<{shape}x!quant.uniform<i8:f32, {scale}:{zero}>>"


def decode_step(width: int, heads: int, positions: int, seed: int = 0) -> str:
    """IR text of a step: hidden state ``[1, width]``, caches ``[heads, positions, width / heads]`` of keys and values,
    a mask ``[1, 1, positions]``, and the position ``[3]`` (int32) of the token, to hidden state and caches.

    Attention with a residual, then two layers of four times the width with another.
    """
    random, each = np.random.default_rng(seed), width // heads
    hidden, cache = _q(f"1x{width}", 0.05, 3), _q(f"{heads}x{positions}x{each}", 0.05, 3)
    head, scores = _q(f"{heads}x1x{each}", 0.05, 3), _q(f"{heads}x1x{positions}", 0.08)
    chances, mask = _q(f"{heads}x1x{positions}", 1 / 256, -128), _q(f"1x1x{positions}", 0.08)
    lines: list[str] = ["%none = circle.none"]

    def shape(name: str, *sizes: int) -> str:
        lines.append(f"%{name} = circle.const {list(sizes)} : tensor<{len(sizes)}xi32>")
        return f"tensor<{len(sizes)}xi32>"

    def product(name: str, source: str, kind: str, rows: int, columns: int, result: str) -> None:
        codes, weights = random.integers(-127, 128, (rows, columns)).astype(np.int8), _q(f"{rows}x{columns}", 0.002)
        lines.append(f'%w_{name} = circle.const #circle.blob<"0x{codes.tobytes().hex()}"> : {weights}')
        types = f"({kind}, {weights}, none) -> {result}"
        lines.append(f"%{name} = circle.fully_connected(%{source}, %w_{name}, %none) {{}} : {types}")

    as_heads, as_row = shape("as_heads", heads, 1, each), shape("as_row", 1, width)
    for name in "qkv":
        product(f"{name}_row", "x", hidden, width, width, hidden)
        lines.append(f"%{name} = circle.reshape(%{name}_row, %as_heads) : ({hidden}, {as_heads}) -> {head}")
    for name in "kv":
        types = f"({cache}, {head}, tensor<3xi32>) -> {cache}"
        lines.append(f"%{name}_all = circle.dynamic_update_slice(%{name}_cache, %{name}, %position) : {types}")
    wide = _q(f"1x{4 * width}", 0.05)
    lines += [
        f"%s = circle.batch_matmul(%q, %k_all) {{adjoint_rhs = true}} : ({head}, {cache}) -> {scores}",
        f"%masked = circle.add(%s, %mask) : ({scores}, {mask}) -> {scores}",
        f"%p = circle.softmax(%masked) {{beta = 1.0}} : ({scores}) -> {chances}",
        f"%o = circle.batch_matmul(%p, %v_all) : ({chances}, {cache}) -> {head}",
        f"%o_row = circle.reshape(%o, %as_row) : ({head}, {as_row}) -> {hidden}",
    ]
    product("mixed", "o_row", hidden, width, width, hidden)
    lines.append(f"%r = circle.add(%x, %mixed) : ({hidden}, {hidden}) -> {hidden}")
    product("up", "r", hidden, 4 * width, width, wide)
    lines.append(f"%g = circle.gelu(%up) : ({wide}) -> {wide}")
    product("down", "g", wide, width, 4 * width, hidden)
    lines.append(f"%y = circle.add(%r, %down) : ({hidden}, {hidden}) -> {hidden}")
    given = f"%x: {hidden}, %k_cache: {cache}, %v_cache: {cache}, %mask: {mask}, %position: tensor<3xi32>"
    body = "\n  ".join([*lines, f"func.return %y, %k_all, %v_all : {hidden}, {cache}, {cache}"])
    return f"func.func @main({given}) -> ({hidden}, {cache}, {cache}) {{\n  {body}\n}}\n"
