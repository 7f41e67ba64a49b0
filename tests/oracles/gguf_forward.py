#!/usr/bin/env python3
"""A forward pass of llama, qwen2 and gemma3 in NumPy, straight from a GGUF file, to judge ours on trained weights.

    pip install gguf numpy safetensors
    tests/oracles/gguf_forward.py FILE.gguf IDS_FILE LOGITS.safetensors [float32|float64]

Weights are dequantised by llama.cpp's own package; everything else is written out here from the authors' descriptions, in
the tensors' GGUF form (interleaved rows of q and k in llama, norms with their 1 in gemma3). Prints how far the logits of
`nunspark logits` are from these; exit status 1 above 1e-4 of the largest logit. For development only.
"""
import math
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

LIMIT = 1e-4


class Model:
    def __init__(self, path, dtype):
        reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.dtype = dtype
        arch = self.arch = reader.fields["general.architecture"].contents()
        if arch not in ("llama", "qwen2", "gemma3"):
            sys.exit(f"Error: architecture {arch!r}; expected llama, qwen2 or gemma3")

        def get(name, missing=None):
            field = reader.fields.get(f"{arch}.{name}")
            return missing if field is None else field.contents()

        self.layers = get("block_count")
        self.width = get("embedding_length")
        self.heads = get("attention.head_count")
        self.kv_heads = get("attention.head_count_kv", self.heads)
        self.head_dim = get("attention.key_length", self.width // self.heads)
        self.epsilon = get("attention.layer_norm_rms_epsilon")
        self.theta = get("rope.freq_base", 10000.0)
        self.local_theta = get("rope.freq_base_swa", 10000.0)
        self.window = get("attention.sliding_window", 0) if arch == "gemma3" else 0

    def has(self, name):
        return name in self.tensors

    def weight(self, name):
        tensor = self.tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(self.dtype)

    def rows(self, name, first, last):
        tensor = self.tensors[name]
        return gguf.quants.dequantize(tensor.data[first:last], tensor.tensor_type).astype(self.dtype)


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotate(x, theta, interleaved):
    """x [tokens, heads, head_dim]; token t is at position t."""
    tokens, _, dim = x.shape
    angles = np.arange(tokens)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)[None, :]
    cos, sin = (f(angles)[:, None, :].astype(x.dtype) for f in (np.cos, np.sin))
    out = np.empty_like(x)
    first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, dim // 2), slice(dim // 2, None))
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def attend(q, k, v, window):
    tokens, heads, dim = q.shape
    query, key = np.arange(tokens)[:, None], np.arange(tokens)[None, :]
    visible = (key <= query) & ((query - key < window) if window else True)
    out = np.empty_like(q)
    for head in range(heads):
        shared = head // (heads // k.shape[1])
        scores = np.where(visible, q[:, head] @ k[:, shared].T / math.sqrt(dim), -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[:, head] = (p / p.sum(axis=-1, keepdims=True)) @ v[:, shared]
    return out.reshape(tokens, heads * dim)


def layer(m, index, x):
    def product(name, value):
        y = value @ m.weight(f"blk.{index}.{name}.weight").T
        return y + m.weight(f"blk.{index}.{name}.bias") if m.has(f"blk.{index}.{name}.bias") else y

    def norm(name, value):
        full = f"blk.{index}.{name}.weight"
        return rms_norm(value, m.weight(full), m.epsilon) if m.has(full) else value

    local = m.arch == "gemma3" and (index + 1) % 6 != 0
    h = norm("attn_norm", x)
    q = product("attn_q", h).reshape(len(x), m.heads, m.head_dim)
    k = product("attn_k", h).reshape(len(x), m.kv_heads, m.head_dim)
    v = product("attn_v", h).reshape(len(x), m.kv_heads, m.head_dim)
    theta = m.local_theta if local else m.theta
    q, k = (rotate(t, theta, m.arch == "llama") for t in (norm("attn_q_norm", q), norm("attn_k_norm", k)))
    h = product("attn_output", attend(q, k, v, m.window if local else 0))
    x = x + norm("post_attention_norm", h)
    h = norm("ffn_norm", x)
    gate = product("ffn_gate", h)
    if m.arch == "gemma3":
        gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    else:
        gate = gate / (1 + np.exp(-gate))
    return x + norm("post_ffw_norm", product("ffn_down", gate * product("ffn_up", h)))


def forward(m, ids):
    """The final hidden states, after the last norm."""
    x = np.stack([m.rows("token_embd.weight", i, i + 1)[0] for i in ids])
    if m.arch == "gemma3":
        x = x * m.dtype(math.sqrt(m.width))
    for index in range(m.layers):
        x = layer(m, index, x)
    return rms_norm(x, m.weight("output_norm.weight"), m.epsilon)


def main():
    dtype = np.float64 if sys.argv[4:] == ["float64"] else np.float32
    m = Model(sys.argv[1], dtype)
    ids = [int(word) for word in open(sys.argv[2]).read().replace(",", " ").split()]
    ours = load_file(sys.argv[3])["logits"]
    x = forward(m, ids)
    head = "output.weight" if m.has("output.weight") else "token_embd.weight"
    vocab = int(m.tensors[head].shape[1])
    if ours.shape != (len(ids), vocab):
        sys.exit(f"Error: {sys.argv[3]}: expected logits {(len(ids), vocab)}, found {ours.shape}")
    largest, difference, sum_squares, all_squares = 0.0, 0.0, 0.0, 0.0
    best, best_id = np.full(len(ids), -np.inf), np.zeros(len(ids), np.int64)
    for first in range(0, vocab, 16384):
        y = x @ m.rows(head, first, first + 16384).T
        error = np.abs(y - ours[:, first:first + y.shape[1]])
        difference, largest = max(difference, error.max()), max(largest, np.abs(y).max())
        sum_squares += np.square(error, dtype=np.float64).sum()
        all_squares += np.square(y, dtype=np.float64).sum()
        higher = y.max(axis=1) > best
        best_id = np.where(higher, first + y.argmax(axis=1), best_id)
        best = np.maximum(best, y.max(axis=1))
    same = int((best_id == ours.argmax(axis=1)).sum())
    print(f"{m.arch} {len(ids)} tokens in {np.dtype(dtype).name}: largest difference {difference / largest:.2e} of max|logit| "
          f"{largest:.2f}, rms {math.sqrt(sum_squares / all_squares):.2e}, best token the same at {same} of {len(ids)}")
    sys.exit(0 if difference <= LIMIT * largest else 1)


if __name__ == "__main__":
    main()
