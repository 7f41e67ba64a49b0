#!/usr/bin/env python3
"""Writes tests/data/codec: random codes, scales and biases with what they decode to: every affine format, mxfp4, mxfp8,
nvfp4 (with and without a tensor scale), AWQ and block-scaled fp8. GGML's blocks: tests/oracles/make_block_vectors.py.

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
        products = products_of(x, decoded)
        shape = [ROWS, COLS // group]
        tensors[f"{kind}.weight"] = ("U32", [ROWS, COLS * bits // 32], weight)
        tensors[f"{kind}.scales"] = (kind.upper(), shape, scales)
        tensors[f"{kind}.biases"] = (kind.upper(), shape, biases)
        tensors[f"{kind}.dequantized"] = ("F32", [ROWS, COLS], encode(decoded, "f32"))
        tensors[f"{kind}.y_rows"] = ("I32", [ROWS], struct.pack(f"<{ROWS}i", *range(ROWS)))
        tensors[f"{kind}.y"] = ("F32", [X_ROWS, ROWS], encode(products, "f32"))
    write_file(path, tensors)


E2M1 = [Fraction(v, 2) for v in (0, 1, 2, 3, 4, 6, 8, 12)]


def e2m1(code):
    return -E2M1[code & 7] if code & 8 else E2M1[code & 7]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    value = Fraction(mantissa, 512) if exponent == 0 else Fraction(8 + mantissa, 8) * Fraction(2) ** (exponent - 7)
    return -value if code & 0x80 else value


def e8m0(code):
    return Fraction(2) ** (code - 127)


def finite_e4m3(rng):
    return rng.choice([code for code in range(256) if code & 0x7F != 0x7F])


def products_of(x, decoded):
    return [
        float(sum(Fraction(x[m * COLS + k]) * Fraction(decoded[n * COLS + k]) for k in range(COLS)))
        for m in range(X_ROWS)
        for n in range(len(decoded) // COLS)
    ]


def write_file(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def with_product(rng, tensors, decoded):
    x = [as_f32(rng.gauss(0, 1)) for _ in range(X_ROWS * COLS)]
    rows = len(decoded) // COLS
    tensors["x"] = ("F32", [X_ROWS, COLS], encode(x, "f32"))
    tensors["dequantized"] = ("F32", [rows, COLS], encode(decoded, "f32"))
    tensors["y_rows"] = ("I32", [rows], struct.pack(f"<{rows}i", *range(rows)))
    tensors["y"] = ("F32", [X_ROWS, rows], encode(products_of(x, decoded), "f32"))
    return tensors


def microscaled(mode, bits, group, tensor_scale=None):
    rng = random.Random(f"codec {mode} {tensor_scale}")
    element = e2m1 if bits == 4 else e4m3
    weight, scales, decoded = b"", b"", []
    for row in range(ROWS):
        stream, codes = 0, []
        for j in range(COLS):
            code = finite_e4m3(rng) if bits == 8 else rng.randrange(16)
            stream |= code << (bits * j)
            codes.append(code)
        weight += stream.to_bytes(COLS * bits // 8, "little")
        row_scales = [finite_e4m3(rng) if mode == "nvfp4" else rng.randrange(90, 140) for _ in range(COLS // group)]
        if mode != "nvfp4" and row == 0:
            row_scales[:3] = [0, 1, 2]  # below float32's normal range
        scales += bytes(row_scales)
        for j, code in enumerate(codes):
            scale = e4m3(row_scales[j // group]) if mode == "nvfp4" else e8m0(row_scales[j // group])
            if tensor_scale is not None:
                scale = Fraction(as_f32(scale * Fraction(tensor_scale)))
            decoded.append(as_f32(element(code) * scale))
    tensors = {
        "weight": ("U32", [ROWS, COLS * bits // 32], weight),
        "scales": ("U8", [ROWS, COLS // group], scales),
    }
    if tensor_scale is not None:
        tensors["tensor_scale"] = ("F32", [1], encode([tensor_scale], "f32"))
    return with_product(rng, tensors, decoded)


def awq(group, kind):
    rng = random.Random(f"codec awq {group} {kind}")
    rows, groups = 16, COLS // group
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    codes = [[rng.randrange(16) for _ in range(rows)] for _ in range(COLS)]
    zeros = [[rng.randrange(16) for _ in range(rows)] for _ in range(groups)]
    scale_bytes = encode([rng.uniform(-0.02, 0.05) for _ in range(groups * rows)], kind)
    scales = decode(scale_bytes, kind)

    def words(lines):
        out = b""
        for line in lines:
            for first in range(0, rows, 8):
                out += struct.pack("<I", sum(line[first + n] << (4 * i) for i, n in enumerate(order)))
        return out

    decoded = []
    for n in range(rows):
        for k in range(COLS):
            g = k // group
            decoded.append(as_f32((codes[k][n] - zeros[g][n]) * Fraction(scales[g * rows + n])))
    return with_product(rng, {
        "qweight": ("I32", [COLS, rows // 8], words(codes)),
        "qzeros": ("I32", [groups, rows // 8], words(zeros)),
        "scales": (kind.upper(), [groups, rows], scale_bytes),
    }, decoded)


def fp8_blocks(block_rows, block_cols, kind):
    rng = random.Random(f"codec fp8 {block_rows} {block_cols} {kind}")
    rows = 10
    blocks = (-(-rows // block_rows), -(-COLS // block_cols))
    scale_bytes = encode([rng.uniform(-0.001, 0.003) for _ in range(blocks[0] * blocks[1])], kind)
    scales = decode(scale_bytes, kind)
    codes = [finite_e4m3(rng) for _ in range(rows * COLS)]
    decoded = [
        as_f32(e4m3(codes[n * COLS + k]) * Fraction(scales[n // block_rows * blocks[1] + k // block_cols]))
        for n in range(rows)
        for k in range(COLS)
    ]
    return with_product(rng, {
        "weight": ("U8", [rows, COLS], bytes(codes)),
        "weight_scale_inv": (kind.upper(), list(blocks), scale_bytes),
    }, decoded)


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "codec"
    folder.mkdir(parents=True, exist_ok=True)
    for bits in (1, 2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            make_file(folder / f"affine_b{bits}_g{group}.safetensors", bits, group)
    write_file(folder / "mxfp4_g32.safetensors", microscaled("mxfp4", 4, 32))
    write_file(folder / "mxfp8_g32.safetensors", microscaled("mxfp8", 8, 32))
    write_file(folder / "nvfp4_g16.safetensors", microscaled("nvfp4", 4, 16))
    write_file(folder / "nvfp4_g16_scaled.safetensors", microscaled("nvfp4", 4, 16, as_f32(0.013)))
    for group, kind in ((32, "f16"), (64, "bf16"), (128, "f16")):
        write_file(folder / f"awq_g{group}_{kind}.safetensors", awq(group, kind))
    for block_rows, block_cols, kind in ((4, 128, "f32"), (3, 100, "bf16")):
        write_file(folder / f"fp8_{block_rows}x{block_cols}_{kind}.safetensors", fp8_blocks(block_rows, block_cols, kind))


if __name__ == "__main__":
    main()
