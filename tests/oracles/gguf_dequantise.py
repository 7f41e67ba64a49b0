#!/usr/bin/env python3
"""Turns a GGUF file into a float32 checkpoint folder of the form that Hugging Face's models have.

    pip install gguf numpy
    tests/oracles/gguf_dequantise.py FILE.gguf FOLDER [TOKENIZER.json[.gz]] [--keep-rows]

The weights come from llama.cpp's own package (gguf.quants.dequantize). What its converter did to them is undone:
interleaved rows of q and k (llama), the 1 in the norms (gemma3). The configuration is written from the metadata and from
what llama.cpp assumes of each architecture (src/models/*.cpp), not from our reader, so that both can be compared on the
same numbers: llama, qwen2, gemma3. --keep-rows leaves q and k of llama as they are stored and says so by MLX's
"rope_traditional": then even the sums over a head are in one order. Anything the script does not know is refused. For development only.
"""
import gzip
import json
import pathlib
import shutil
import struct
import sys

import gguf
import numpy as np

BLOCK_NAMES = {
    "llama": {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
    "qwen2": {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
    "gemma3": {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
               "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
               "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"},
}
PROJECTIONS = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
               "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
               "ffn_down": "mlp.down_proj"}
ENDS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight"}


class Metadata:
    """Keys of a file; float32 values as the decimal that their writer was given."""

    def __init__(self, reader):
        self.fields = reader.fields
        self.arch = self.fields["general.architecture"].contents()

    def get(self, name, missing=None):
        field = self.fields.get(f"{self.arch}.{name}")
        if field is None:
            return missing
        value = field.contents()
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def need(self, name):
        value = self.get(name)
        if value is None:
            sys.exit(f"Error: key {self.arch}.{name} is missing")
        return value


def refuse_unknown(meta):
    if meta.arch not in BLOCK_NAMES:
        sys.exit(f"Error: architecture {meta.arch!r}; expected one of {', '.join(BLOCK_NAMES)}")
    scaling = [name for name in meta.fields if ".rope.scaling." in name or name.endswith(".rope.scale_linear")]
    if scaling or meta.get("expert_count", 0):
        sys.exit(f"Error: RoPE scaling and experts are not translated: {scaling or 'expert_count'}")


def config_of(meta, tensors):
    heads = meta.need("attention.head_count")
    width = meta.need("embedding_length")
    head_dim = meta.get("attention.key_length", width // heads)
    if meta.get("attention.value_length", head_dim) != head_dim or meta.get("rope.dimension_count", head_dim) != head_dim:
        sys.exit("Error: heads with values of another width, or turned in part, are not translated")
    config = {
        "hidden_size": width,
        "num_hidden_layers": meta.need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": meta.need("feed_forward_length"),
        "rms_norm_eps": meta.need("attention.layer_norm_rms_epsilon"),
        "rope_theta": meta.get("rope.freq_base", 10000.0),
        "max_position_embeddings": meta.need("context_length"),
        "vocab_size": int(tensors["token_embd.weight"].shape[1]),
        "tie_word_embeddings": "output.weight" not in tensors,
        "torch_dtype": "float32",
    }
    if meta.arch == "llama":
        config |= {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
                   "attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": False}
    elif meta.arch == "qwen2":
        config |= {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
                   "use_sliding_window": False}
    else:
        # Every sixth layer sees everything; the others turn by a base that the file may leave out. The 27B model scales
        # its scores by the width per head instead of the head's own.
        layers = config["num_hidden_layers"]
        config |= {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"],
                   "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False,
                   "sliding_window": meta.need("attention.sliding_window"), "sliding_window_pattern": 6,
                   "layer_types": ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(layers)],
                   "rope_local_base_freq": meta.get("rope.freq_base_swa", 10000.0),
                   "query_pre_attn_scalar": width // heads if layers == 62 else head_dim,
                   "attn_logit_softcapping": None, "final_logit_softcapping": meta.get("final_logit_softcapping")}
    return config


def name_of(arch, name):
    if name in ENDS:
        return ENDS[name]
    blk, layer, part, kind = (name.split(".") + ["", ""])[:4]
    module = (PROJECTIONS | BLOCK_NAMES[arch]).get(part)
    if blk != "blk" or module is None or kind not in ("weight", "bias"):
        sys.exit(f"Error: tensor {name!r} is not known in {arch}")
    return f"model.layers.{layer}.{module}.{kind}"


def undone(arch, name, values, config):
    """`values` as they were before the converter."""
    part = name.split(".")[2] if name.startswith("blk.") else name
    if arch == "llama" and part in ("attn_q", "attn_k") and "rope_traditional" not in config:
        heads = config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
        # [head, pair, 2, ...] -> [head, 2, pair, ...]
        pairs = values.reshape(heads, config["head_dim"] // 2, 2, *values.shape[1:])
        return pairs.swapaxes(1, 2).reshape(values.shape)
    if arch == "gemma3" and "norm" in name:
        less = values - np.float32(1)
        if not np.array_equal(less + np.float32(1), values):
            sys.exit(f"Error: {name} loses bits when 1 is taken away")
        return less
    return values


def write_tensors(path, reader, arch, config):
    """One tensor in memory at a time: some files are larger than the machine's memory once they are float32."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for tensor in reader.tensors:
        size = 4 * int(tensor.n_elements)
        header[name_of(arch, tensor.name)] = {"dtype": "F32", "shape": [int(n) for n in reversed(tensor.shape)],
                                              "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("<f4", copy=False)
            values = values.reshape([int(n) for n in reversed(tensor.shape)])
            np.ascontiguousarray(undone(arch, tensor.name, values, config)).tofile(file)


def main():
    keep_rows = "--keep-rows" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--keep-rows"]
    reader = gguf.GGUFReader(arguments[0])
    folder = pathlib.Path(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    meta = Metadata(reader)
    refuse_unknown(meta)
    config = config_of(meta, {tensor.name: tensor for tensor in reader.tensors})
    if keep_rows and meta.arch == "llama":
        config["rope_traditional"] = True
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_tensors(folder / "model.safetensors", reader, meta.arch, config)
    if len(arguments) > 2:
        opened = gzip.open if arguments[2].endswith(".gz") else open
        with opened(arguments[2], "rb") as source, open(folder / "tokenizer.json", "wb") as target:
            shutil.copyfileobj(source, target)


if __name__ == "__main__":
    main()
