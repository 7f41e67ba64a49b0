#!/usr/bin/env python3
"""Writes tests/data/quantize: rows of floats and what they are quantised to, for every format that the packer writes.

An implementation of its own (exact fractions, rounded to float32 after each step as the definition says; a row of codes is
one big integer), so that it shares no mistake with the engine's encoders. Needs only Python's standard library; the output
depends on nothing but this file.
"""
import json
import pathlib
import random
import struct
from fractions import Fraction

COLS = 128
KINDS = ("bf16", "f16", "f32")
E2M1 = [Fraction(v) for v in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]
E4M3 = [Fraction(c & 7, 512) if c < 8 else Fraction(8 + (c & 7), 8) * Fraction(2) ** ((c >> 3) - 7) for c in range(127)]


def f32(value):
    return Fraction(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def encode(values, kind):
    if kind == "bf16":
        words = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]
        return b"".join(struct.pack("<H", (w + 0x7FFF + (w >> 16 & 1)) >> 16) for w in words)
    return b"".join(struct.pack({"f16": "<e", "f32": "<f"}[kind], v) for v in values)


def decode(data, kind):
    if kind == "bf16":
        return [struct.unpack("<f", struct.pack("<I", w[0] << 16))[0] for w in struct.iter_unpack("<H", data)]
    return [v[0] for v in struct.iter_unpack({"f16": "<e", "f32": "<f"}[kind], data)]


def stream(codes, bits):
    return sum(code << (bits * j) for j, code in enumerate(codes)).to_bytes(len(codes) * bits // 8, "little")


def affine(values, bits, group, kind):
    codes, scales, biases = [], [], []
    top = (1 << bits) - 1
    for start in range(0, len(values), group):
        part = [Fraction(v) for v in values[start : start + group]]
        lo, hi = min(part), max(part)
        step = max(f32(f32(hi - lo) / top), f32(1e-7))
        scale, bias = (step if abs(lo) > abs(hi) else -step), Fraction(0)
        edge = lo if abs(lo) > abs(hi) else hi
        zero = round(f32(edge / scale))  # Python rounds ties to even
        if zero != 0:
            scale, bias = f32(edge / zero), edge
        codes += [min(max(round(f32(f32(v - bias) / scale)), 0), top) for v in part]
        scales.append(float(scale))
        biases.append(float(bias))
    return stream(codes, bits), encode(scales, kind), encode(biases, kind)


def nearest(table, value, tie_to_even):
    best = min(abs(entry - value) for entry in table)
    ties = [code for code, entry in enumerate(table) if abs(entry - value) == best]
    return next((code for code in ties if code % 2 == 0), ties[0]) if tie_to_even else ties[0]


def microscaling(values, bits):
    table, codes, scales = (E2M1 if bits == 4 else E4M3), [], []
    for start in range(0, len(values), 32):
        part = [Fraction(v) for v in values[start : start + 32]]
        largest = f32(max(abs(v) for v in part) / table[-1])
        exponent = 0
        if largest:
            exponent = next(e for e in range(-127, 128) if Fraction(2) ** e >= largest)
        scales.append(exponent + 127)
        for v, original in zip(part, values[start : start + 32]):
            code = nearest(table, abs(f32(v / Fraction(2) ** exponent)), bits == 8)
            negative = struct.pack("<f", original)[3] & 0x80 and (code or bits == 8)
            codes.append(code | ((1 << (bits - 1)) if negative else 0))
    return stream(codes, bits), bytes(scales)


def rows(rng, kind):
    """One row for each kind of weights that has gone wrong somewhere."""
    n = COLS
    normal = lambda scale: [rng.gauss(0, 1) * scale for _ in range(n)]
    big = 3e4 if kind == "f16" else 1e30
    tiny = 2.0**-22 if kind == "f16" else 1e-36
    return [
        normal(1),
        normal(0.02),
        [[0.75, -1.5, 1e-3, 3.0][j // 32] for j in range(n)],
        [0.0] * n,
        [-abs(v) - 0.1 for v in normal(1)],
        [abs(v) + 0.1 for v in normal(1)],
        [rng.uniform(-1, 1) * big for _ in range(n)],
        [rng.uniform(-1, 1) * tiny for _ in range(n)],
        [v * (60 if j % 37 == 5 else 1) for j, v in enumerate(normal(0.05))],
        [(j - n / 2) / 16 for j in range(n)],
        [v if j >= 64 else 0.0 for j, v in enumerate(normal(1))],
        [(-1.0) ** j for j in range(n)],
        [rng.choice([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, -0.25, -1.75, -0.0, -6.0]) for _ in range(n)],
        [rng.choice([448.0, 1.0625, 1.1875, 2.0**-10, 3 * 2.0**-10, -(2.0**-11), 17.0, -19.0]) for _ in range(n)],
    ]


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "quantize"
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random("quantize")
    tensors = {}
    for kind in KINDS:
        source = [encode(row, kind) for row in rows(rng, kind)]
        values = [decode(row, kind) for row in source]
        count = len(source)
        tensors[f"{kind}.source"] = (kind.upper(), [count, COLS], b"".join(source))
        for bits, group in [(b, 64) for b in (2, 3, 4, 5, 6, 8)] + [(4, 32), (4, 128), (8, 32), (3, 128)]:
            parts = [affine(row, bits, group, kind) for row in values]
            name = f"{kind}.affine{bits}_g{group}"
            tensors[f"{name}.weight"] = ("U32", [count, COLS * bits // 32], b"".join(p[0] for p in parts))
            tensors[f"{name}.scales"] = (kind.upper(), [count, COLS // group], b"".join(p[1] for p in parts))
            tensors[f"{name}.biases"] = (kind.upper(), [count, COLS // group], b"".join(p[2] for p in parts))
        for bits in (4, 8):
            parts = [microscaling(row, bits) for row in values]
            tensors[f"{kind}.mxfp{bits}.weight"] = ("U32", [count, COLS * bits // 32], b"".join(p[0] for p in parts))
            tensors[f"{kind}.mxfp{bits}.scales"] = ("U8", [count, COLS // 32], b"".join(p[1] for p in parts))
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (folder / "rows.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
