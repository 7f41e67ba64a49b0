#!/usr/bin/env python3
"""The Python wheel of `tokenizers` as the peer of nunspark_text_bench: one line in, one number out.

First its version. Then for "load PATH" and "encode PATH" seconds of processor time, the latter with the tokenizer that
was loaded last and for the faster of encode and encode_batch_fast; for "memory PATH" the bytes a process grows by.
"""
import subprocess
import sys
import time

import tokenizers

MEMORY = """
import sys, tokenizers
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
before = resident()
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
print(resident() - before)
"""


def seconds(work):
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def encode(tokenizer, path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    ways = [lambda: tokenizer.encode(text, add_special_tokens=False)]
    if hasattr(tokenizer, "encode_batch_fast"):
        ways.append(lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False))
    return min(seconds(way)[0] for way in ways)


def main():
    print(tokenizers.__version__, flush=True)
    tokenizer = None
    for line in sys.stdin:
        what, _, path = line.rstrip("\n").partition(" ")
        if what == "load":
            spent, tokenizer = seconds(lambda: tokenizers.Tokenizer.from_file(path))
            tokenizer.no_padding()
            tokenizer.no_truncation()
            print(spent, flush=True)
        elif what == "encode":
            print(encode(tokenizer, path), flush=True)
        else:
            print(subprocess.run([sys.executable, "-c", MEMORY, path], check=True, capture_output=True, text=True).stdout.strip(), flush=True)


main()
