#!/usr/bin/env python3
"""Writes recipe_types.json: which type llama.cpp's quantiser gives each tensor of small models.

    make_recipe_types.py LLAMA_QUANTIZE    (llama.cpp's program; needs gguf and numpy of PyPI)

The models have random matrices and no vocabulary; only their shapes matter. Types of layers are listed from the first
layer to the last.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np

RECIPES = [
    "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "IQ4_NL", "Q4_0", "IQ4_XS",
    "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",
]
# Layers, hidden size, heads, heads of keys, inner size, experts, tied embeddings, joined projections.
MODELS = {
    "deep": dict(arch="llama", layers=32, hidden=256, heads=4, kv=1, inner=256, experts=0, tied=False),
    "tied": dict(arch="llama", layers=20, hidden=256, heads=4, kv=2, inner=512, experts=0, tied=True),
    "narrow": dict(arch="llama", layers=9, hidden=96, heads=3, kv=1, inner=160, experts=0, tied=False),
    "odd": dict(arch="llama", layers=2, hidden=256, heads=2, kv=1, inner=80, experts=0, tied=True),
    "mixture": dict(arch="llama", layers=16, hidden=256, heads=4, kv=1, inner=256, experts=8, tied=False),
    "four-experts": dict(arch="qwen3moe", layers=8, hidden=256, heads=4, kv=2, inner=256, experts=4, tied=False),
    "shared": dict(arch="qwen2moe", layers=4, hidden=256, heads=4, kv=4, inner=256, experts=4, tied=False),
    "joined": dict(arch="phi3", layers=12, hidden=256, heads=4, kv=4, inner=256, experts=0, tied=False),
}
VOCABULARY = 32


def write(path, m):
    random = np.random.default_rng(0)
    out = gguf.GGUFWriter(path, m["arch"])
    out.add_block_count(m["layers"])
    out.add_context_length(64)
    out.add_embedding_length(m["hidden"])
    out.add_feed_forward_length(m["inner"])
    out.add_head_count(m["heads"])
    out.add_head_count_kv(m["kv"])
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(VOCABULARY)
    out.add_rope_dimension_count(m["hidden"] // m["heads"])
    if m["experts"]:
        out.add_expert_count(m["experts"])
        out.add_expert_used_count(2)
        out.add_expert_feed_forward_length(m["inner"])
    if m["arch"] == "phi3":
        out.add_sliding_window(0)

    def matrix(name, *shape):
        out.add_tensor(name, random.standard_normal(shape).astype(np.float16))

    def vector(name, size):
        out.add_tensor(name, np.ones(size, np.float32))

    hidden, inner, size = m["hidden"], m["inner"], m["hidden"] // m["heads"]
    keys = size * m["kv"]
    matrix("token_embd.weight", VOCABULARY, hidden)
    if not m["tied"]:
        matrix("output.weight", VOCABULARY, hidden)
    vector("output_norm.weight", hidden)
    for layer in range(m["layers"]):
        at = f"blk.{layer}."
        vector(at + "attn_norm.weight", hidden)
        vector(at + "ffn_norm.weight", hidden)
        if m["arch"] == "phi3":
            matrix(at + "attn_qkv.weight", hidden + 2 * keys, hidden)
            matrix(at + "ffn_up.weight", 2 * inner, hidden)
        else:
            matrix(at + "attn_q.weight", hidden, hidden)
            matrix(at + "attn_k.weight", keys, hidden)
            matrix(at + "attn_v.weight", keys, hidden)
        matrix(at + "attn_output.weight", hidden, hidden)
        if m["experts"]:
            out.add_tensor(at + "ffn_gate_inp.weight", random.standard_normal((m["experts"], hidden)).astype(np.float32))
            matrix(at + "ffn_gate_exps.weight", m["experts"], inner, hidden)
            matrix(at + "ffn_up_exps.weight", m["experts"], inner, hidden)
            matrix(at + "ffn_down_exps.weight", m["experts"], hidden, inner)
            if m["arch"] == "qwen2moe":
                matrix(at + "ffn_gate_inp_shexp.weight", 1, hidden)
                matrix(at + "ffn_gate_shexp.weight", inner, hidden)
                matrix(at + "ffn_up_shexp.weight", inner, hidden)
                matrix(at + "ffn_down_shexp.weight", hidden, inner)
        elif m["arch"] != "phi3":
            matrix(at + "ffn_gate.weight", inner, hidden)
            matrix(at + "ffn_up.weight", inner, hidden)
        if not m["experts"]:
            matrix(at + "ffn_down.weight", hidden, inner)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def types(path):
    """By the tensor's name without its layer: the types, layer by layer; a run is "TYPE*COUNT"."""
    found = {}
    for tensor in gguf.GGUFReader(path).tensors:
        parts = tensor.name.split(".")
        layered = parts[0] == "blk"
        name = ".".join(parts[2:]) if layered else tensor.name
        found.setdefault(name, {})[int(parts[1]) if layered else 0] = tensor.tensor_type.name
    runs = {}
    for name, by_layer in sorted(found.items()):
        row = []
        for layer in sorted(by_layer):
            if row and row[-1][0] == by_layer[layer]:
                row[-1][1] += 1
            else:
                row.append([by_layer[layer], 1])
        runs[name] = " ".join(f"{kind}*{count}" for kind, count in row)
    return runs


def main():
    program = sys.argv[1]
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, m in MODELS.items():
            source = f"{folder}/{name}.gguf"
            write(source, m)
            shapes = {t.name: [int(n) for n in reversed(t.shape)] for t in gguf.GGUFReader(source).tensors
                      if not t.name.startswith("blk.") or t.name.startswith("blk.0.")}
            by_recipe = {}
            for recipe in RECIPES:
                out = f"{folder}/out.gguf"
                run = subprocess.run([program, source, out, recipe], capture_output=True, text=True)
                if run.returncode:
                    sys.exit(f"{name} {recipe}: {run.stdout[-2000:]}{run.stderr[-2000:]}")
                by_recipe[recipe] = types(out)
            facts = {key: m[key] for key in ("layers", "heads", "kv", "experts", "tied")}
            result[name] = {"facts": facts, "shapes": shapes, "recipes": by_recipe}
    path = pathlib.Path(__file__).parent / "recipe_types.json"
    models = []
    for name, model in result.items():
        rows = [f"  {json.dumps(recipe)}: {json.dumps(row)}" for recipe, row in model.pop("recipes").items()]
        head = json.dumps(model)[1:-1]
        models.append(f"{json.dumps(name)}: {{{head},\n \"recipes\": {{\n" + ",\n".join(rows) + "\n }}")
    path.write_text("{\n" + ",\n".join(models) + "\n}\n")


if __name__ == "__main__":
    main()
