#!/usr/bin/env python3
"""Compares a GGUF model with the float32 folder made from it by gguf_dequantise.py, both through `nunspark logits`.

    pip install numpy safetensors
    tests/oracles/gguf_compare.py NUNSPARK FILE.gguf FOLDER TEXT_FILE --at 40@0 200@500 [--bos ID] [--out FOLDER]

Each prompt N@K is N tokens of the text from its K-th token on (with --bos, the first of them is ID). One line a prompt:
the largest difference of a logit against the largest logit, the root mean square of the differences against that of the
logits, and whether the 16 tokens that follow greedily are the same. Exit status 1 when a difference is above 1e-4 or
the tokens are not the same. --out keeps prompts (.ids) and logits (.gguf.safetensors, .f32.safetensors). For
development only.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

GREEDY = 16
LIMIT = 1e-4


def encode(program, model, text):
    line = json.dumps({"text": text}) + "\n"
    done = subprocess.run([program, "tokenize", model], input=line.encode(), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["ids"]


def logits(program, model, ids_file, out):
    subprocess.run([program, "logits", model, "--prompt-ids-file", ids_file, "--greedy", str(GREEDY), "--kv", "f32",
                    "--threads", "1", "--out", out], check=True, stdout=subprocess.DEVNULL)
    return load_file(out)


def main():
    parser = argparse.ArgumentParser()
    for name in ("program", "file", "folder", "text"):
        parser.add_argument(name)
    parser.add_argument("--at", nargs="+", required=True)
    parser.add_argument("--bos", type=int)
    parser.add_argument("--out")
    args = parser.parse_args()
    temporary = tempfile.TemporaryDirectory()
    out = pathlib.Path(args.out or temporary.name)
    out.mkdir(parents=True, exist_ok=True)
    ids = encode(args.program, args.file, pathlib.Path(args.text).read_text(encoding="utf-8"))
    failed = False
    for place in args.at:
        count, begin = map(int, place.split("@"))
        prompt = ids[begin:begin + count] if args.bos is None else [args.bos] + ids[begin:begin + count - 1]
        if len(prompt) != count:
            sys.exit(f"Error: {args.text} has {len(ids)} tokens, too few for {place}")
        (out / f"{place}.ids").write_text(",".join(map(str, prompt)) + "\n")
        a = logits(args.program, args.file, out / f"{place}.ids", out / f"{place}.gguf.safetensors")
        b = logits(args.program, args.folder, out / f"{place}.ids", out / f"{place}.f32.safetensors")
        x, y = a["logits"], b["logits"]
        assert x.shape == y.shape and x.shape[0] == count, (x.shape, y.shape)
        difference = np.abs(x - y)
        worst = np.unravel_index(np.argmax(difference), x.shape)
        largest = difference[worst] / np.abs(y).max()
        rms = np.sqrt(np.mean(np.square(difference, dtype=np.float64)) / np.mean(np.square(y, dtype=np.float64)))
        same = np.array_equal(a["greedy"], b["greedy"])
        failed |= not same or not largest <= LIMIT
        print(f"{place:>9}  largest {largest:.2e} (at token {worst[0]})  rms {rms:.2e}  max|logit| {np.abs(y).max():.2f}  "
              f"greedy {'same' if same else 'DIFFERENT'} (smallest margin {b['margin'].min():.3f})  "
              f"best at every token {'same' if np.array_equal(x.argmax(1), y.argmax(1)) else 'not same'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
