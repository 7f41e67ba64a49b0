#!/usr/bin/env python3
"""Writes tests/data/codec/gguf_<type>.safetensors: random blocks of GGML's types and what the gguf package says they are.

Needs the Python packages gguf and numpy. The output depends on nothing but this file (checked
with gguf 0.19.0). Every block is random bytes, except that its scales in halves are finite and small, so that every bit
of the layout matters.
"""
import json
import pathlib
import struct

import gguf
import numpy as np

ROWS, BLOCKS = 3, 2
# Places of the halves in a block.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}


def random_blocks(rng, name, elements, size):
    blocks = rng.integers(0, 256, (ROWS, 256 // elements * BLOCKS, size), dtype=np.uint8)
    for place in HALVES[name]:
        halves = (rng.standard_normal(blocks.shape[:2]) * 0.01).astype(np.float16)
        halves[0, 0] = np.float16(2.0**-20)  # subnormal
        blocks[:, :, place : place + 2] = halves.view(np.uint8).reshape(*halves.shape, 2)
    if name == "MXFP4":
        blocks[:, :, 0] = rng.integers(90, 140, blocks.shape[:2])
        blocks[0, :3, 0] = [0, 1, 2]
    return blocks.reshape(ROWS, -1)


def write_file(path, tensors):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        content = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "data" / "codec"
    for name in HALVES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random_blocks(np.random.default_rng([ord(c) for c in name]), name, elements, size)
        decoded = gguf.dequantize(blocks, kind).astype(np.float32)
        write_file(folder / f"gguf_{name.lower()}.safetensors", {"blocks": ("U8", blocks), "dequantized": ("F32", decoded)})


if __name__ == "__main__":
    main()
