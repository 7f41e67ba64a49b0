#!/usr/bin/env python3
"""Writes GGUF files with llama.cpp's own `gguf` package, and what is in them as its reader sees it.

    pip install gguf numpy
    tests/oracles/gguf_oracle.py tests/data/gguf          # the files of the test (src/formats/gguf_oracle_test.cc)
    tests/oracles/gguf_oracle.py --read FILE.gguf ...     # the JSON of any file, to compare by hand

Numbers are written as text, strings as hexadecimal bytes. For development only.
"""
import json
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFValueType as V

NAMES = {V.UINT8: "u8", V.INT8: "i8", V.UINT16: "u16", V.INT16: "i16", V.UINT32: "u32", V.INT32: "i32", V.FLOAT32: "f32",
         V.BOOL: "bool", V.STRING: "string", V.UINT64: "u64", V.INT64: "i64", V.FLOAT64: "f64"}


def text(kind, part):
    if kind == V.STRING:
        return bytes(part).hex()
    value = part.tolist()[0]
    return str(bool(value)).lower() if kind == V.BOOL else repr(value)


def describe(path):
    reader = gguf.GGUFReader(path)
    keys = []
    for name, field in reader.fields.items():
        if name.startswith("GGUF."):
            continue
        kind = field.types[-1]
        keys.append({"name": name, "type": ("array of " if len(field.types) > 1 else "") + NAMES[kind],
                     "values": [text(kind, field.parts[i]) for i in field.data]})
    tensors = [{"name": t.name, "type": t.tensor_type.name, "shape": [int(n) for n in reversed(t.shape)],
                "offset": int(t.data_offset), "bytes": int(t.n_bytes)} for t in sorted(reader.tensors, key=lambda t: t.data_offset)]
    return {"keys": keys, "tensors": tensors}


def add_tensors(writer, rng):
    writer.add_tensor("f32", rng.standard_normal((3, 5)).astype(np.float32))
    writer.add_tensor("f16", rng.standard_normal((2, 3, 4)).astype(np.float16))
    writer.add_tensor("ids", np.arange(7, dtype=np.int32))
    for kind in (Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_NL, Q.IQ4_XS, Q.MXFP4):
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = 256 // elements
        writer.add_tensor(kind.name.lower(), rng.integers(0, 256, (2, blocks * size), dtype=np.uint8), raw_dtype=kind)


def write(path, arch="llama", endian=gguf.GGUFEndian.LITTLE, alignment=None, tensors=True, **options):
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, arch, endianess=endian, **options)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for kind, value in ((V.UINT8, 200), (V.INT8, -100), (V.UINT16, 60000), (V.INT16, -30000), (V.UINT32, 4000000000), (V.INT32, -5),
                        (V.UINT64, 2**63 - 1), (V.INT64, -2**62), (V.FLOAT32, 1e-6), (V.FLOAT64, 0.1), (V.BOOL, True), (V.STRING, "ä\n")):
        writer.add_key_value(f"test.{NAMES[kind]}", value, kind)
    writer.add_array("test.ints", [-1, 2, 3])
    writer.add_array("test.floats", [0.5, -0.25, 1e30])
    writer.add_array("test.flags", [True, False])
    writer.add_array("test.words", ["a", "", "▁b", "x" * 300])
    writer.add_token_list(["a", "b"])
    writer.add_token_types([1, 3])
    writer.add_block_count(1)
    writer.add_embedding_length(256)
    writer.add_head_count(2)
    if tensors:
        add_tensors(writer, rng)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    if sys.argv[1] == "--read":
        for path in sys.argv[2:]:
            print(json.dumps(describe(path)))
        return
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "plain.gguf")
    write(folder / "aligned.gguf", alignment=128)
    write(folder / "split.gguf", split_max_tensors=7)
    for path in sorted(folder.glob("*.gguf")):
        path.with_suffix(".json").write_text(json.dumps(describe(path), indent=1) + "\n")
    write(folder / "big_endian.gguf", endian=gguf.GGUFEndian.BIG, tensors=False)


if __name__ == "__main__":
    main()
