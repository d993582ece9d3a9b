#!/usr/bin/env python3
"""Writes golden logits and the small random models beside bard: of Llamas (logits.json, logits.f32)
and of the other architectures (architectures.json, architectures.f32).

    pip install -r scripts/train/requirements.txt
    tests/golden/make_goldens.py             # CPU, about a minute
    tests/golden/make_goldens.py --models    # also makes tests/golden/models anew

The logits come from transformers in float32 with the weights upcast. README.md describes the files.
"""

import argparse
import copy
import json
import math
import pathlib
import random
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PROMPT_LENGTHS = (1, 7, 200)
DECODE_STEPS = 20

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}

# Small shapes, each with something that a real model has and bard has not. Written by hand, and not
# by transformers, because the forms of older versions are part of what is tested.
MODELS = {
    # As transformers 4 wrote Llama 3.1: rope_theta and rope_scaling apart, no head_dim, separate
    # output matrix. 64 original positions put a frequency in each of the three bands.
    "llama3-rope": {
        **LLAMA,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": [2, 3],
        "hidden_size": 128,
        "initializer_range": 0.02,
        "intermediate_size": 256,
        "max_position_embeddings": 512,
        "mlp_bias": False,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 64,
            "rope_type": "llama3",
        },
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.43.0",
        "use_cache": True,
        "vocab_size": 384,
    },
    # Nothing is a multiple of 16 but the head; heads x head_dim is not the hidden size; three KV
    # heads; an epsilon large enough to be seen.
    "odd-sizes": {
        **LLAMA,
        "bos_token_id": 1,
        "dtype": "bfloat16",
        "eos_token_id": 2,
        "head_dim": 32,
        "hidden_size": 108,
        "intermediate_size": 136,
        "max_position_embeddings": 300,
        "num_attention_heads": 6,
        "num_hidden_layers": 3,
        "num_key_value_heads": 3,
        "rms_norm_eps": 0.01,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
        "transformers_version": "5.17.0",
        "vocab_size": 301,
    },
    # Splits into 8 shards and into 8 stages; as many KV heads as heads.
    "eight-ways": {
        **LLAMA,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": 16,
        "hidden_size": 64,
        "intermediate_size": 128,
        "max_position_embeddings": 512,
        "num_attention_heads": 8,
        "num_hidden_layers": 8,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0",
        "vocab_size": 320,
    },
    # As transformers 5 writes it; a large theta; F16 matrices beside F32 norms and embedding, in
    # two files with an index.
    "big-theta": {
        **LLAMA,
        "bos_token_id": 1,
        "dtype": "float16",
        "eos_token_id": 2,
        "head_dim": 24,
        "hidden_size": 144,
        "intermediate_size": 200,
        "max_position_embeddings": 1024,
        "num_attention_heads": 6,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_theta": 5000000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
        "transformers_version": "5.17.0",
        "vocab_size": 257,
    },
}


SMALL = {
    "bos_token_id": 1,
    "dtype": "bfloat16",
    "eos_token_id": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False,
    "transformers_version": "5.24.0",
    "vocab_size": 256,
}
DEFAULT_ROPE = {"rope_theta": 10000.0, "rope_type": "default"}

# A model of each other architecture, with what it has and Llama has not.
ARCHITECTURES = {
    # Biases everywhere, and RoPE by the served context.
    "llama-biases": {
        **SMALL,
        **LLAMA,
        "attention_bias": True,
        "max_position_embeddings": 64,
        "mlp_bias": True,
        "rope_parameters": {"factor": 4.0, "rope_theta": 10000.0, "rope_type": "dynamic"},
        "served_context": 256,
    },
    "mistral": {
        **SMALL,
        "architectures": ["MistralForCausalLM"],
        "hidden_act": "silu",
        "model_type": "mistral",
        "rope_scaling": {"factor": 2.0, "type": "linear"},
        "rope_theta": 10000.0,
        "sliding_window": 48,
    },
    # A window in the last layer alone.
    "qwen2": {
        **SMALL,
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_act": "silu",
        "max_window_layers": 2,
        "model_type": "qwen2",
        "rope_parameters": {
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 10000.0,
            "rope_type": "yarn",
        },
        "sliding_window": 40,
        "tie_word_embeddings": True,
        "use_sliding_window": True,
    },
    "qwen3": {
        **SMALL,
        "architectures": ["Qwen3ForCausalLM"],
        "head_dim": 32,
        "hidden_act": "silu",
        "model_type": "qwen3",
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "sliding_window": None,
        "use_sliding_window": False,
    },
    # 12 of a head's 16 dimensions are rotated.
    "phi3": {
        **SMALL,
        "architectures": ["Phi3ForCausalLM"],
        "hidden_act": "silu",
        "model_type": "phi3",
        "original_max_position_embeddings": 256,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {
            "long_factor": [1.0, 1.5, 2.5, 4.0, 7.0, 11.0],
            "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.5],
            "type": "longrope",
        },
        "rope_theta": 10000.0,
        "sliding_window": 100,
    },
    "gemma2": {
        **SMALL,
        "architectures": ["Gemma2ForCausalLM"],
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 4.0,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "model_type": "gemma2",
        "num_hidden_layers": 4,
        "query_pre_attn_scalar": 40,
        "rope_theta": 10000.0,
        "sliding_window": 32,
        "tie_word_embeddings": True,
    },
    # Two windows to one layer without, of other frequencies.
    "gemma3": {
        **SMALL,
        "architectures": ["Gemma3ForCausalLM"],
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "model_type": "gemma3_text",
        "num_attention_heads": 2,
        "query_pre_attn_scalar": 256,
        "rope_parameters": {
            "full_attention": {"factor": 8.0, "rope_theta": 1000000.0, "rope_type": "linear"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "sliding_window": 32,
        "tie_word_embeddings": True,
    },
    "granite": {
        **SMALL,
        "architectures": ["GraniteForCausalLM"],
        "attention_bias": False,
        "attention_multiplier": 0.4,
        "embedding_multiplier": 6.0,
        "hidden_act": "silu",
        "logits_scaling": 8.0,
        "mlp_bias": False,
        "model_type": "granite",
        "residual_multiplier": 0.22,
        "rope_parameters": DEFAULT_ROPE,
        "tie_word_embeddings": True,
    },
    # Every second layer is not rotated.
    "smollm3": {
        **SMALL,
        "architectures": ["SmolLM3ForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "mlp_bias": False,
        "model_type": "smollm3",
        "no_rope_layer_interval": 2,
        "no_rope_layers": [1, 0, 1],
        "rope_parameters": {"rope_theta": 2000000.0, "rope_type": "default"},
        "use_sliding_window": False,
    },
    # Experts: two of six for each row, in all layers.
    "mixtral": {
        **SMALL,
        "architectures": ["MixtralForCausalLM"],
        "hidden_act": "silu",
        "intermediate_size": 96,
        "model_type": "mixtral",
        "num_experts_per_tok": 2,
        "num_local_experts": 6,
        "rope_parameters": DEFAULT_ROPE,
        "sliding_window": None,
    },
    # Weights of the chosen that do not sum up to 1, and an expert that all rows have.
    "qwen2-moe": {
        **SMALL,
        "architectures": ["Qwen2MoeForCausalLM"],
        "hidden_act": "silu",
        "model_type": "qwen2_moe",
        "moe_intermediate_size": 32,
        "norm_topk_prob": False,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "rope_parameters": DEFAULT_ROPE,
        "seed": 212,
        "shared_expert_intermediate_size": 64,
    },
    # Normalised weights, and norms of queries and keys.
    "qwen3-moe": {
        **SMALL,
        "architectures": ["Qwen3MoeForCausalLM"],
        "head_dim": 24,
        "hidden_act": "silu",
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 40,
        "norm_topk_prob": True,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "rope_parameters": DEFAULT_ROPE,
    },
    # An MLP in every other layer.
    "qwen3-moe-mixed": {
        **SMALL,
        "architectures": ["Qwen3MoeForCausalLM"],
        "decoder_sparse_step": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 48,
        "norm_topk_prob": True,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": DEFAULT_ROPE,
    },
}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def random_weights(config, seed):
    """Weights at which attention is neither flat nor a copy, and every norm gain matters."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows, cols, gain=1.0):
        return torch.randn(rows, cols, generator=generator) * (gain / math.sqrt(cols))

    def norm():
        return 0.5 + torch.rand(hidden, generator=generator)

    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_key_value_heads"] * head_dim
    # A tied embedding is kept small beside what the layers add: else each token predicts itself.
    scale = 0.1 if config["tie_word_embeddings"] else 1.0
    embedding = matrix(config["vocab_size"], hidden, scale * math.sqrt(hidden))
    weights = {"model.embed_tokens.weight": embedding}
    for i in range(config["num_hidden_layers"]):
        layer = {
            "input_layernorm": norm(),
            "self_attn.q_proj": matrix(queries, hidden, 1.5),
            "self_attn.k_proj": matrix(keys, hidden),
            "self_attn.v_proj": matrix(keys, hidden),
            "self_attn.o_proj": matrix(hidden, queries),
            "post_attention_layernorm": norm(),
            "mlp.gate_proj": matrix(ffn, hidden),
            "mlp.up_proj": matrix(ffn, hidden),
            "mlp.down_proj": matrix(hidden, ffn),
        }
        weights |= {f"model.layers.{i}.{name}.weight": tensor for name, tensor in layer.items()}
    weights["model.norm.weight"] = norm()
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(config["vocab_size"], hidden, 2.0)
    return weights


def random_state(config, seed):
    """The same of any architecture: transformers names the tensors and gives their shapes."""
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    offset = 1.0 if config["model_type"].startswith("gemma") else 0.0  # is added to stored gains
    scale = 0.1 if config["tie_word_embeddings"] else 1.0
    weights = {}
    for name, tensor in model.state_dict().items():
        shape = tensor.shape
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        if "norm" in name:
            weights[name] = 0.5 - offset + torch.rand(shape, generator=generator)
        elif name.endswith("bias"):
            weights[name] = 0.5 * torch.randn(shape, generator=generator)
        else:
            gain = {"embed": scale * math.sqrt(shape[1]), "q_proj": 1.5, "lm_head": 2.0, ".gate.": 2.0}
            factors = [factor for part, factor in gain.items() if part in name] or [1.0]
            matrix = torch.randn(shape, generator=generator)
            weights[name] = matrix * (factors[0] / math.sqrt(shape[-1]))
    return weights if not has_experts(config) else as_stored(model, weights)


def has_experts(config):
    return "num_experts_per_tok" in config


def as_stored(model, weights):
    """transformers keeps the experts of a layer as one, and files have them apart."""
    model.load_state_dict(weights)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def save_in_one_file(folder, weights):
    stored = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})


def save_in_two_files(folder, weights):
    """F16, but F32 for norms and embedding; every other tensor goes into the other file."""
    stored = {
        name: tensor if "norm" in name or "embed" in name else tensor.half()
        for name, tensor in weights.items()
    }
    names = list(stored)
    weight_map = {}
    for number in (1, 2):
        file = f"model-0000{number}-of-00002.safetensors"
        part = {name: stored[name] for name in names[number - 1 :: 2]}
        save_file(part, folder / file, {"format": "pt"})
        weight_map |= {name: file for name in part}
    size = sum(tensor.nbytes for tensor in stored.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(folder / "model.safetensors.index.json", index)


def make_models():
    for seed, (name, config) in enumerate(MODELS.items(), start=1):
        folder = HERE / "models" / name
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", config)
        save = save_in_two_files if name == "big-theta" else save_in_one_file
        save(folder, random_weights(config, seed))
        for file in folder.glob("*.safetensors"):
            file.chmod(0o644)


def make_architectures():
    for number, (name, config) in enumerate(ARCHITECTURES.items(), start=101):
        folder = HERE / "models" / name
        folder.mkdir(parents=True, exist_ok=True)
        seed = config.get("seed", number)
        config = {key: value for key, value in config.items() if key not in ("served_context", "seed")}
        write_json(folder / "config.json", config)
        save_in_one_file(folder, random_state(copy.deepcopy(config), seed))
        (folder / "model.safetensors").chmod(0o644)


def serve(model, context):
    """Takes the frequencies of this served context for all lengths, as Skein does."""
    rotary = model.model.rotary_emb
    init = ROPE_INIT_FUNCTIONS[rotary.rope_type]
    frequencies, rotary.attention_scaling = init(model.config, seq_len=context)
    rotary.inv_freq.copy_(frequencies)
    rotary.original_inv_freq = rotary.long_inv_freq = frequencies.clone()
    rotary.max_seq_len_cached = rotary.original_max_seq_len = 1 << 30


def prompts(folder, vocab):
    """Ids of each length. bard gets BOS and its own kind of text, the others random ids."""
    tokenizer_file = folder / "tokenizer.json"
    if tokenizer_file.exists():
        from tokenizers import Tokenizer

        corpus = ROOT / "scripts" / "train" / "tinyshakespeare.txt"
        text = corpus.read_text(encoding="ascii")[:2000]
        ids = Tokenizer.from_file(str(tokenizer_file)).encode(text).ids
        return [ids[:length] for length in PROMPT_LENGTHS]
    return [
        [random.Random(f"{folder.name} {length} {i}").randrange(vocab) for i in range(length)]
        for length in PROMPT_LENGTHS
    ]


@torch.no_grad()
def run(model, prompt, decode):
    """Logits [DECODE_STEPS + 1, vocab]; the ids fed after the prompt: `decode`, or greedy ones."""
    rows, fed = [], []
    ids, cache = torch.tensor([prompt]), None
    for step in range(DECODE_STEPS + 1):
        out = model(input_ids=ids, past_key_values=cache, use_cache=True)
        rows.append(out.logits[0, -1])
        if step == DECODE_STEPS:
            return torch.stack(rows), fed
        cache = out.past_key_values
        fed.append(decode[step] if decode else int(rows[-1].argmax()))
        ids = torch.tensor([[fed[-1]]])


class RouterGaps:
    """By how much the last chosen expert was ahead of the first that was not."""

    def __init__(self, model):
        self.least = math.inf
        for name, module in model.named_modules():
            if name.endswith(".gate") and hasattr(module, "top_k"):
                module.register_forward_hook(self.look)

    def look(self, router, _, out):
        ordered = out[0].sort(dim=-1, descending=True).values
        gaps = ordered[:, router.top_k - 1] - ordered[:, router.top_k]
        self.least = min(self.least, gaps.min().item())


def relative_error(rows, reference):
    """Largest over the rows: ||row - reference|| / ||reference||."""
    return ((rows.double() - reference.double()).norm(dim=1) / reference.double().norm(dim=1)).max()


def load(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    ).eval()


def write_logits(stem, runs):
    """Of folders, served contexts, and folders with the same values in a form that is loaded."""
    cases, blob = [], bytearray()
    for folder, context, loaded in runs:
        model, double = load(loaded, torch.float32), load(loaded, torch.float64)
        if context:
            serve(model, context)
            serve(double, context)
        gaps = RouterGaps(model)
        for prompt in prompts(folder, model.config.vocab_size):
            rows, decode = run(model, prompt, None)
            error = relative_error(rows, run(double, prompt, decode)[0]).item()
            whole = model(input_ids=torch.tensor([prompt + decode])).logits[0, len(prompt) - 1 :]
            assert relative_error(rows, whole.detach()) < 1e-5, "the cache changes the logits"
            cases.append(
                {
                    "model": str(folder.relative_to(ROOT)),
                    "context": context,
                    "prompt": prompt,
                    "decode": decode,
                    "rows": rows.shape[0],
                    "vocab": rows.shape[1],
                    "offset_bytes": len(blob),
                    "float64_error": float(f"{error:.1e}"),
                }
            )
            blob += rows.numpy().astype("<f4").tobytes()
            print(f"{folder.name:12} context {context:3}  prompt {len(prompt):3}  float64 differs by {error:.1e}")
        assert gaps.least > 1e-4, f"{folder}: experts are chosen by {gaps.least}: take another seed"
    (HERE / f"{stem}.f32").write_bytes(blob)
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = ",\n".join("    " + json.dumps(case) for case in cases)
    (HERE / f"{stem}.json").write_text(
        f'{{\n  "made_with": {json.dumps(made_with)},\n  "cases": [\n{lines}\n  ]\n}}\n',
        encoding="utf-8",
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", action="store_true", help="make the random models anew")
    parser.add_argument("--only", choices=("logits", "architectures"), help="one of the two files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the last bits of a sum depend on the number of threads
    if arguments.only != "architectures":
        if arguments.models:
            make_models()
        folders = [ROOT / "checkpoints" / "bard"] + [HERE / "models" / name for name in MODELS]
        write_logits("logits", [(folder, 0, folder) for folder in folders])
    if arguments.only != "logits":
        if arguments.models:
            make_architectures()
        models = HERE / "models"
        runs = [(models / "phi3", 512, models / "phi3")]
        for name, config in ARCHITECTURES.items():
            runs.append((models / name, config.get("served_context", 0), models / name))
        write_logits("architectures", runs)


if __name__ == "__main__":
    main()
