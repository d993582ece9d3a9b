"""The Llama architecture in float64, by numpy alone: a second opinion on what transformers says."""

import json

import numpy as np


def read_bf16(path):
    """Every tensor of a safetensors file as float64."""
    blob = path.read_bytes()
    begin = 8 + int.from_bytes(blob[:8], "little")
    tensors = {}
    for name, entry in json.loads(blob[8:begin]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", name
        first, last = entry["data_offsets"]
        upper = np.frombuffer(blob[begin + first : begin + last], "<u2").astype(np.uint32)
        values = (upper << 16).view(np.float32).astype(np.float64)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


class Llama:
    """A model with tied embeddings and plain RoPE, such as bard."""

    def __init__(self, folder):
        config = json.loads((folder / "config.json").read_text())
        assert config["tie_word_embeddings"]
        assert config["rope_parameters"]["rope_type"] == "default"
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim, self.layers = config["head_dim"], config["num_hidden_layers"]
        self.epsilon = config["rms_norm_eps"]
        self.weights = read_bf16(folder / "model.safetensors")
        exponents = np.arange(0, self.head_dim, 2) / self.head_dim
        self.frequencies = config["rope_parameters"]["rope_theta"] ** -exponents

    def norm(self, x, name):
        root = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.epsilon)
        return x / root * self.weights[f"{name}.weight"]

    def project(self, x, name):
        return x @ self.weights[f"{name}.weight"].T

    def rotate(self, x, first):
        """x [tokens, heads, head_dim], of positions from `first`."""
        angles = np.arange(first, first + len(x))[:, None, None] * self.frequencies
        a, b = np.split(x, 2, axis=-1)
        cosine, sine = np.cos(angles), np.sin(angles)
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)

    def attend(self, x, name, kept):
        """Adds the keys and values of x [tokens, hidden] to `kept`, a pair, and attends to all."""
        count, group = len(x), self.heads // self.kv_heads
        query, key, value = (
            self.project(x, f"{name}.{part}_proj").reshape(count, -1, self.head_dim)
            for part in "qkv"
        )
        first = 0 if kept is None else len(kept[0])
        query, key = self.rotate(query, first), self.rotate(key, first)
        if kept is not None:
            key, value = np.concatenate([kept[0], key]), np.concatenate([kept[1], value])
        kept = (key, value)
        key, value = key.repeat(group, axis=1), value.repeat(group, axis=1)
        scores = np.einsum("thd,shd->hts", query, key) / np.sqrt(self.head_dim)
        later = np.arange(len(key))[None, :] > first + np.arange(count)[:, None]
        scores[:, later] = -np.inf
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        out = np.einsum("hts,shd->thd", scores, value).reshape(count, -1)
        return self.project(out, f"{name}.o_proj"), kept

    def run(self, ids, cache):
        """Logits [tokens, vocab] of `ids` after what is in `cache` (None at the begin), and the
        cache with them; the one that was given is left as it was."""
        x = self.weights["model.embed_tokens.weight"][ids]
        grown = []
        for i in range(self.layers):
            name = f"model.layers.{i}"
            kept = None if cache is None else cache[i]
            out, kept = self.attend(
                self.norm(x, f"{name}.input_layernorm"), f"{name}.self_attn", kept
            )
            grown.append(kept)
            x = x + out
            h = self.norm(x, f"{name}.post_attention_layernorm")
            gate = self.project(h, f"{name}.mlp.gate_proj")
            h = gate / (1 + np.exp(-gate)) * self.project(h, f"{name}.mlp.up_proj")
            x = x + self.project(h, f"{name}.mlp.down_proj")
        return self.norm(x, "model.norm") @ self.weights["model.embed_tokens.weight"].T, grown
