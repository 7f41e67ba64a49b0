#!/usr/bin/env python3
"""Compares `nunspark tokenize` with the `sentencepiece` and `tiktoken` libraries on models made on the spot.

    pip install sentencepiece tiktoken tokenizers
    tests/oracles/spm_tiktoken_oracle.py --command "build/release/bin/nunspark tokenize" --text FILE [--cases 1500] [--seconds 600]

FILE is any text of some 100 KB; models are trained on it in a temporary folder. Prints each difference; exits 1 when
there was one. For development and CI only.
"""
import argparse
import base64
import os
import random
import sys
import tempfile

import sentencepiece
import tiktoken

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processor_time import processor_seconds  # noqa: E402
from tokenizer_oracle import Subject, random_text  # noqa: E402

KINDS = {
    "nmt": dict(byte_fallback=False, normalization_rule_name="nmt_nfkc"),
    "llama": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
                  user_defined_symbols=["<|im_start|>", "<|im_end|>", "\n\n", "the", "▁▁"], allow_whitespace_only_pieces=True),
    "folded": dict(byte_fallback=False, normalization_rule_name="nfkc_cf", add_dummy_prefix=False, control_symbols=["<ctl>"]),
}
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def sentencepiece_differences(command, folder, lines, rng, cases):
    problems = 0
    for algorithm in ("bpe", "unigram"):
        for kind, options in KINDS.items():
            prefix = f"{folder}/{algorithm}_{kind}"
            sentencepiece.SentencePieceTrainer.train(input=f"{folder}/text", model_prefix=prefix, minloglevel=2, hard_vocab_limit=False, model_type=algorithm,
                                                     vocab_size=1800, character_coverage=0.995, treat_whitespace_as_suffix=(algorithm, kind) == ("unigram", "folded"), **options)
            reference = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
            subject = Subject(command, prefix + ".model")
            for case in range(cases):
                text = rng.choice(lines)[:300] if case % 3 == 0 else random_text(rng, ["<|im_start|>", "<s>", "<ctl>", "the ", "<0x41>"])
                expected = reference.encode(text)
                found = subject.ask({"text": text}).get("ids")
                if found != expected:
                    problems += 1
                    print(f"{algorithm} {kind}: {text!r}: expected {expected[:40]} found {(found or [])[:40]}")
                ids = expected * rng.randrange(2) + [rng.randrange(reference.vocab_size()) for _ in range(rng.randrange(12))]
                if subject.ask({"ids": ids}).get("text") != reference.decode(ids):
                    problems += 1
                    print(f"{algorithm} {kind}: decode {ids}: expected {reference.decode(ids)!r}")
            subject.close()
    return problems


def tiktoken_differences(command, folder, lines, rng, cases):
    ranks = {bytes([b]): b for b in range(256)}
    while len(ranks) < 2000:  # random joins of known tokens that occur in the text
        data = rng.choice(lines).encode()
        start, size = rng.randrange(max(len(data), 1)), rng.randrange(2, 8)
        token = data[start:start + size]
        if len(token) > 1 and token not in ranks and any(token[:i] in ranks and token[i:] in ranks for i in range(1, len(token))):
            ranks[token] = len(ranks)
    path = f"{folder}/ranks.tiktoken"
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    reference = tiktoken.Encoding("oracle", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    subject = Subject(command, path)
    problems = 0
    for case in range(cases):
        text = rng.choice(lines)[:300] if case % 3 == 0 else random_text(rng, [])
        expected = reference.encode(text)
        if subject.ask({"text": text}).get("ids") != expected:
            problems += 1
            print(f"tiktoken: {text!r}: expected {expected[:40]}")
        ids = [rng.randrange(len(ranks)) for _ in range(rng.randrange(9))]
        if subject.ask({"ids": ids}).get("text") != reference.decode(ids):
            problems += 1
            print(f"tiktoken: decode {ids}: expected {reference.decode(ids)!r}")
    subject.close()
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--command", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=0, help="of processor time; new models are made until then, at least once")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with open(args.text, encoding="utf-8", errors="replace") as file:
        lines = [line for line in file.read().split("\n") if line.strip()]
    problems = rounds = 0
    while rounds == 0 or (processor_seconds() < args.seconds and problems == 0):
        rng.shuffle(lines)
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/text", "w", encoding="utf-8") as file:
                file.write("\n".join(lines[:6000]))
            problems += sentencepiece_differences(args.command, folder, lines, rng, args.cases)
            problems += tiktoken_differences(args.command, folder, lines, rng, args.cases)
        rounds += 1
    print(f"{rounds} rounds, {processor_seconds():.0f} s of processor time, {problems} differences")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
