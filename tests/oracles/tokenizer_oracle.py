#!/usr/bin/env python3
"""Compares `nunspark tokenize` with the reference libraries on random texts and random pipelines.

    pip install tokenizers            (or: npm install tokenizers, and --npm FOLDER)
    tests/oracles/tokenizer_oracle.py --command "build/release/bin/nunspark tokenize" --seconds 600 FILE...

Every FILE (tokenizer.json or .gz) is tried as it is and, where its vocabulary is small, with random normalizers,
pre-tokenizers, post-processors, decoders and added tokens. Prints each difference; exits 1 when there was one.
For development and CI only; nothing here is needed to build or run the product.
"""
import argparse
import gzip
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time

from processor_time import processor_seconds

os.environ["TOKENIZERS_PARALLELISM"] = "false"


class PythonReference:
    """The PyPI package."""

    def __init__(self, path):
        import tokenizers
        self.inner = tokenizers.Tokenizer.from_file(path)
        self.inner.no_padding()
        self.inner.no_truncation()

    def encode(self, text, special):
        return self.inner.encode(text, add_special_tokens=special).ids

    def decode(self, ids, skip):
        return self.inner.decode(ids, skip_special_tokens=skip)

    def known_text(self, token):
        token_id = self.inner.token_to_id(token)
        return None if token_id is None else self.inner.id_to_token(token_id)

    def vocab_size(self):
        return self.inner.get_vocab_size()


class NpmReference:
    """The npm package, in a process of its own that is started again when a panic ends it."""
    folder = None
    process = None

    def __init__(self, path):
        self.path = path
        self.ask(load=path)

    def ask(self, **request):
        for _ in range(2):
            if NpmReference.process is None or NpmReference.process.poll() is not None:
                helper = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npm_tokenizers.mjs")
                NpmReference.process = subprocess.Popen(["node", helper, self.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8")
                if "load" not in request:
                    self.ask(load=self.path)
            try:
                self.process.stdin.write(json.dumps(request) + "\n")
                self.process.stdin.flush()
                line = self.process.stdout.readline()
            except BrokenPipeError:
                line = ""
            if line:
                answer = json.loads(line)
                if "failed" in answer:
                    raise ValueError(answer["failed"])
                return answer["ok"]
            NpmReference.process.wait()
        raise ValueError("the reference ended")

    def encode(self, text, special):
        return self.ask(encode=text, special=special)

    def decode(self, ids, skip):
        return self.ask(decode=ids, skip=skip)

    def known_text(self, token):
        return self.ask(token=token)

    def vocab_size(self):
        return self.ask(size=True)

Reference = PythonReference

WORDS = ["the", "Hello", "world", "don't", "I'M", "we'LL", "x'ſ", "camelCase", "HTTPServer", "été", "naïve", "Straße", "ΑΒΓ",
         "привет", "你好", "こんにちは", "カタカナ", "한국어", "ไทย", "हिन्दी", "العربية", "שלום", "e\u0301", "ﬁ", "①", "½", "Ⅷ", "₂", "²",
         "ǅ", "ªº", "İ", "ß", "\u1e9e", "👩‍👩‍👧", "🇩🇪🇫🇷", "😀", "1234567", "3.14", "0x1F", "▁", "▁▁", "Ġ", "<0x0A>", "<0x0g>", "<unk>"]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u200d", "\x0b", "\x0c"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["…", "—", "“", "”", "«", "。", "，", "、", "¿", "€", "\u2e5d", "\U00011fff", "//", "==", "->", "'s", "'re"]


def random_char(rng):
    kind = rng.random()
    if kind < 0.3:
        return chr(rng.randrange(0x20, 0x7F))
    if kind < 0.5:
        return chr(rng.randrange(0xA0, 0x600))
    if kind < 0.6:
        return chr(rng.choice([0x300, 0x301, 0x327, 0x345, 0x5B0, 0x93C, 0x94D, 0x1100, 0x1161, 0x11A8, 0x3099, 0x0DCF, 0x1DF6, 0x0898]))
    if kind < 0.8:
        return chr(rng.choice([rng.randrange(0x600, 0x2000), rng.randrange(0x2000, 0x3400), rng.randrange(0xA000, 0xD7A4)]))
    while True:
        c = rng.randrange(0x110000)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def random_text(rng, extra):
    parts = []
    for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 13, 30])):
        kind = rng.random()
        if kind < 0.3:
            parts.append(rng.choice(WORDS))
        elif kind < 0.5:
            parts.append(rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 5]))
        elif kind < 0.65:
            parts.append(rng.choice(PUNCTUATION))
        elif kind < 0.75 and extra:
            parts.append(rng.choice(extra))
        elif kind < 0.8:
            parts.append(rng.choice("aA1 .\n") * rng.choice([2, 7, 60]))
        else:
            parts.append("".join(random_char(rng) for _ in range(rng.randrange(1, 6))))
    return "".join(parts)


PATTERNS = [r"\d+", r"\w+", r"\W+", r"[^\w\s]+", r"\s+", r"\s+(?!\S)", r"\p{L}+", r"\p{N}", r"(?i:the|x)", r"\b", r" ?\p{L}+|\d{1,3}", r"[\p{Lu}\p{M}]+", r"a*",
            r"(?=\p{Lu})", r"[[:alpha:]]+", r"[^[:space:]]+", r"\p{Han}+", r"[\p{L}&&[^\p{Han}]]+", r"\P{L}+", r"\p{^L}+", r" {2,}", r"[\r\n]", r"\p{Sc}|\p{Sm}", r"\p{Nd}+|\p{Zs}",
            r"[a-z]+(?-i:X)?", r"(?i)[\p{Lu}]+", r"(?i:\p{Lu})\d?", r".", r"[\w]", r"\p{Word}+", r"\p{Alphabetic}+", r"[]a]+", r"\S"]


# The reference puts a replacement for an empty match twice in some places; no real file has such a pattern.
MATCH_NOTHING = {r"\b", r"a*", r"(?=\p{Lu})"}


def random_pattern(rng, may_be_empty=True):
    if rng.random() < 0.3:
        return {"String": rng.choice([" ", "▁", "a", "\n", "th", "  ", "é"])}
    return {"Regex": rng.choice([p for p in PATTERNS if may_be_empty or p not in MATCH_NOTHING])}


def random_normalizer(rng, depth=0):
    kind = rng.choice(["NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Strip", "Lowercase", "Sequence", "none"])
    if kind == "none" or (kind == "Sequence" and depth > 1):
        return None if depth == 0 else {"type": "NFC"}
    if kind == "Prepend":
        return {"type": kind, "prepend": rng.choice(["▁", " ", "x", "é"])}
    if kind == "Replace":
        return {"type": kind, "pattern": random_pattern(rng, False), "content": rng.choice(["▁", "", " ", "ab"])}
    if kind == "Strip":
        return {"type": kind, "strip_left": rng.random() < 0.5, "strip_right": rng.random() < 0.5}
    if kind == "Sequence":
        return {"type": kind, "normalizers": [random_normalizer(rng, depth + 1) for _ in range(rng.randrange(4))]}
    return {"type": kind}


BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def random_pre_tokenizer(rng, depth=0):
    kind = rng.choice(["Split", "Split", "ByteLevel", "Digits", "Metaspace", "Punctuation", "Whitespace", "WhitespaceSplit", "Sequence", "none"])
    if kind == "none" or (kind == "Sequence" and depth > 1):
        return None if depth == 0 else {"type": "WhitespaceSplit"}
    if kind == "Split":
        return {"type": kind, "pattern": random_pattern(rng), "behavior": rng.choice(BEHAVIORS), "invert": rng.random() < 0.5}
    if kind == "ByteLevel":
        return {"type": kind, "add_prefix_space": rng.random() < 0.5, "trim_offsets": True, "use_regex": rng.random() < 0.5}
    if kind == "Digits":
        return {"type": kind, "individual_digits": rng.random() < 0.5}
    if kind == "Metaspace":
        return {"type": kind, "replacement": rng.choice(["▁", "▁", "_"]), "prepend_scheme": rng.choice(["always", "first", "never"]), "split": rng.random() < 0.5}
    if kind == "Punctuation":
        return {"type": kind, "behavior": rng.choice(BEHAVIORS)}
    if kind == "Sequence":
        return {"type": kind, "pretokenizers": [random_pre_tokenizer(rng, depth + 1) for _ in range(rng.randrange(4))]}
    return {"type": kind}


def random_decoder(rng, depth=0):
    kind = rng.choice(["ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip", "Metaspace", "Sequence", "Sequence", "none"])
    if kind == "none" or (kind == "Sequence" and depth > 1):
        return None if depth == 0 else {"type": "Fuse"}
    if kind == "Replace":
        return {"type": kind, "pattern": random_pattern(rng, False), "content": rng.choice([" ", "", "ab"])}
    if kind == "Strip":  # the reference panics on tokens shorter than what is to be stripped at the end
        return {"type": kind, "content": rng.choice([" ", "a"]), "start": rng.randrange(3), "stop": 0}
    if kind == "Metaspace":
        return {"type": kind, "replacement": "▁", "prepend_scheme": rng.choice(["always", "first", "never"]), "split": True}
    if kind == "Sequence":
        return {"type": kind, "decoders": [random_decoder(rng, depth + 1) for _ in range(rng.randrange(4))]}
    return {"type": kind}


def random_post_processor(rng, vocab):
    token, token_id = rng.choice(sorted(vocab.items()))
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": rng.choice([[special, a], [a, special], [special, a, special]]), "pair": [special, a, b],
                "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}}}
    return rng.choice([None, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template, {"type": "Sequence", "processors": [template]}])


def random_added(rng, base, vocab_size):
    tokens = list(base)
    used = {t["content"] for t in tokens}
    for content in rng.sample(["<a>", "<ab>", "the", " x", "x ", "\n\n", "É", "he", "<|x|>", "  ", "foo bar", "ﬁ", "AB", "Hello world", "t"], rng.randrange(6)):
        if content in used:
            continue
        tokens.append({"id": vocab_size + 100 + len(tokens), "content": content, "single_word": rng.random() < 0.3, "lstrip": rng.random() < 0.3, "rstrip": rng.random() < 0.3,
                       "normalized": rng.random() < 0.5, "special": rng.random() < 0.5})
    return tokens


def vary(rng, source):
    data = json.loads(json.dumps(source))
    vocab = data["model"]["vocab"]
    if isinstance(vocab, list):
        vocab = {piece: i for i, (piece, _) in enumerate(vocab)}
    if rng.random() < 0.5:
        data["normalizer"] = random_normalizer(rng)
    if rng.random() < 0.6:
        data["pre_tokenizer"] = random_pre_tokenizer(rng)
    if rng.random() < 0.6:
        data["decoder"] = random_decoder(rng)
    if rng.random() < 0.4:
        data["post_processor"] = random_post_processor(rng, vocab)
    if rng.random() < 0.5:
        data["added_tokens"] = random_added(rng, data["added_tokens"], len(vocab))
    model = data["model"]
    if model["type"] == "BPE" and rng.random() < 0.5:
        model["ignore_merges"] = rng.random() < 0.5
        model["fuse_unk"] = rng.random() < 0.5
        model["byte_fallback"] = rng.random() < 0.3
        model["unk_token"] = rng.choice([None, None, rng.choice(sorted(vocab))])
        if rng.random() < 0.3:
            model["end_of_word_suffix"] = rng.choice(["t", "e"])
    if model["type"] == "Unigram" and rng.random() < 0.3:
        model["byte_fallback"] = not model["byte_fallback"]
    return data


class Subject:
    def __init__(self, command, path):
        self.process = subprocess.Popen(shlex.split(command) + [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.stderr.read())
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(reference, subject, text, rng, vocab_size):
    found = subject.ask({"text": text})
    try:
        expected = reference.encode(text, False)
    except BaseException:  # the reference panics on some added tokens; whatever we do then is right
        return None
    if found.get("ids") != expected:
        return f"encode: expected {expected[:60]} found {str(found)[:400]}"
    special = subject.ask({"text": text, "special": True})
    if special.get("ids") != reference.encode(text, True):
        return f"encode with specials: found {special}"
    ids = list(expected)
    if rng.random() < 0.3:
        ids += [rng.randrange(vocab_size) for _ in range(rng.randrange(8))]
    for skip in (False, True):
        try:
            expected_text = reference.decode(ids, skip)
        except BaseException:
            continue
        found_text = subject.ask({"ids": ids, "skip_special": skip}).get("text")
        if found_text != expected_text:
            return f"decode {ids} (skip {skip}): expected {expected_text!r} found {found_text!r}"
    return None


def is_random(path, text):
    """Whether the reference does not agree with itself: of normalized added tokens with one normal form it takes any."""
    seen = set()
    for _ in range(12):
        try:
            seen.add(str(Reference(path).encode(text, False)))
        except BaseException:
            pass
    return len(seen) > 1


def run(command, data, name, rng, count, keep=None):
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False, encoding="utf-8") as file:
        json.dump(data, file)
    problems = 0
    try:
        try:
            reference = Reference(file.name)
        except BaseException:
            return 0
        if any(reference.known_text(t["content"]) == "" for t in data["added_tokens"]):
            return 0  # the reference cuts the text at every byte, through characters
        subject = Subject(command, file.name)
        extra = [t["content"] for t in data["added_tokens"]]
        for _ in range(count):
            text = random_text(rng, extra)
            try:
                problem = compare(reference, subject, text, rng, reference.vocab_size())
            except RuntimeError as error:
                print(f"{name}: ended: {error}")
                return problems + 1
            if problem and is_random(file.name, text):
                continue
            if problem:
                problems += 1
                if keep:
                    with open(f"{keep}/{os.getpid()}-{time.time()}.json", "w", encoding="utf-8") as kept:
                        json.dump({"tokenizer": data, "text": text, "problem": problem}, kept)
                parts = {k: data[k] for k in ("normalizer", "pre_tokenizer", "decoder", "post_processor")}
                print(f"{name}: {text!r}\n  {problem[:800]}\n  {json.dumps(parts, ensure_ascii=False)[:900]}\n  {[t for t in data['added_tokens']][-6:]}\n"
                      f"  { {k: v for k, v in data['model'].items() if k not in ('vocab', 'merges')} }")
                if problems > 2:
                    break
        subject.close()
    finally:
        os.unlink(file.name)
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--command", required=True)
    parser.add_argument("--seconds", type=float, default=60, help="of processor time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--npm", metavar="FOLDER", help="compare with the npm package installed there")
    parser.add_argument("--keep", help="a folder for the tokenizers and texts that differ")
    args = parser.parse_args()
    if args.npm:
        global Reference
        Reference = NpmReference
        NpmReference.folder = args.npm
    rng = random.Random(args.seed)
    sources = []
    for path in args.files:
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8") as file:
            sources.append((path, json.load(file)))
    problems = pipelines = 0
    for path, data in sources:
        problems += run(args.command, data, path, rng, 200, args.keep)
    small = [(p, d) for p, d in sources if len(d["model"]["vocab"]) < 20000]
    while small and processor_seconds(NpmReference.process) < args.seconds and problems < 10:
        path, data = rng.choice(small)
        problems += run(args.command, vary(rng, data), path, rng, 25, args.keep)
        pipelines += 1
    print(f"{pipelines} random pipelines, {processor_seconds(NpmReference.process):.0f} s of processor time, {problems} differences")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
