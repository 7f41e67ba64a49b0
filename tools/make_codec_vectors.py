#!/usr/bin/env python3
"""Writes tests/data/codec: random codes, scales and biases with what they decode to, for every affine format.

An implementation of its own (a row is one big integer, arithmetic in exact fractions), so that it shares no mistake with
the engine's decoders. Needs only Python's standard library; the output depends on nothing but this file.
"""
import json
import pathlib
import random
import struct
from fractions import Fraction

ROWS, COLS, X_ROWS = 6, 256, 2


def to_bf16(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def encode(values, kind):
    if kind == "bf16":
        return b"".join(struct.pack("<H", to_bf16(v)) for v in values)
    return b"".join(struct.pack({"f16": "<e", "f32": "<f"}[kind], v) for v in values)


def decode(data, kind):
    if kind == "bf16":
        return [struct.unpack("<f", struct.pack("<I", w[0] << 16))[0] for w in struct.iter_unpack("<H", data)]
    return [v[0] for v in struct.iter_unpack({"f16": "<e", "f32": "<f"}[kind], data)]


def as_f32(value):
    return struct.unpack("<f", struct.pack("<f", float(value)))[0]


def one_kind(rng, bits, group, kind):
    groups = COLS // group
    magnitudes = [0.02, -0.02, 0.0, 3.0, 2.0**-13, 100.0]  # one a row: both signs, zero, small and large
    scales = [magnitudes[row] * (0.5 + rng.random()) for row in range(ROWS) for _ in range(groups)]
    biases = [rng.uniform(-1, 1) * (0.0 if row == 3 else 2.0) for row in range(ROWS) for _ in range(groups)]
    scale_bytes, bias_bytes = encode(scales, kind), encode(biases, kind)
    scales, biases = decode(scale_bytes, kind), decode(bias_bytes, kind)
    weight, decoded = b"", []
    for row in range(ROWS):
        stream = 0
        for j in range(COLS):
            code = rng.randrange(1 << bits)
            stream |= code << (bits * j)
            at = row * groups + j // group
            decoded.append(as_f32(Fraction(scales[at]) * code + Fraction(biases[at])))
        weight += stream.to_bytes(COLS * bits // 8, "little")
    return weight, scale_bytes, bias_bytes, decoded


def make_file(path, bits, group):
    rng = random.Random(f"codec {bits} {group}")
    x = [as_f32(rng.gauss(0, 1)) for _ in range(X_ROWS * COLS)]
    tensors = {"x": ("F32", [X_ROWS, COLS], encode(x, "f32"))}
    for kind in ("bf16", "f16", "f32"):
        weight, scales, biases, decoded = one_kind(rng, bits, group, kind)
        products = [
            float(sum(Fraction(x[m * COLS + k]) * Fraction(decoded[n * COLS + k]) for k in range(COLS)))
            for m in range(X_ROWS)
            for n in range(ROWS)
        ]
        shape = [ROWS, COLS // group]
        tensors[f"{kind}.weight"] = ("U32", [ROWS, COLS * bits // 32], weight)
        tensors[f"{kind}.scales"] = (kind.upper(), shape, scales)
        tensors[f"{kind}.biases"] = (kind.upper(), shape, biases)
        tensors[f"{kind}.dequantized"] = ("F32", [ROWS, COLS], encode(decoded, "f32"))
        tensors[f"{kind}.y_rows"] = ("I32", [ROWS], struct.pack(f"<{ROWS}i", *range(ROWS)))
        tensors[f"{kind}.y"] = ("F32", [X_ROWS, ROWS], encode(products, "f32"))
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "codec"
    folder.mkdir(parents=True, exist_ok=True)
    for bits in (4, 8):
        for group in (32, 64, 128):
            make_file(folder / f"affine_b{bits}_g{group}.safetensors", bits, group)


if __name__ == "__main__":
    main()
