#!/usr/bin/env python3
"""Writes text.json: what transformers makes of a text in float32: perplexities, and the squared inputs of products.

    pip install -r scripts/train/requirements.txt
    tests/golden/make_text_goldens.py        # CPU, half a minute

README.md describes the file.
"""

import json
import pathlib

import torch
import transformers
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TEXT = ROOT / "scripts/train/tinyshakespeare.txt"

# Tokens of a window, tokens from one's begin to the next one's.
WINDOWS = [(64, 32), (256, 100), (100, 99)]
IMATRIX_CONTEXT = 96
# Model, its tokenizer, tokens of the text.
MODELS = {
    "checkpoints/bard": ("checkpoints/bard/tokenizer.json", 2000),
    "tests/golden/models/mixtral": ("tests/golden/byte_tokenizer.json", 700),
}


def write_byte_tokenizer(path):
    """Each byte is a token, without merges, in the order of the byte-level alphabet's characters."""
    from tokenizers import decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path))


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    config.sliding_window = None
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def windows(count, context, stride, has_begin):
    """(begin, end, first token that is scored): each token is scored by the first window that has it."""
    most, scored = context - has_begin, 0
    for begin in range(0, count, stride):
        end = min(begin + most, count)
        yield begin, end, max(scored, begin + 1 - has_begin)
        scored = end
        if end == count:
            return


def perplexity(model, ids, begin_id, context, stride):
    total, count = 0.0, 0
    before = [] if begin_id is None else [begin_id]
    for begin, end, first in windows(len(ids), context, stride, len(before)):
        window = before + ids[begin:end]
        logits = model(torch.tensor([window])).logits[0].double()
        rows = torch.log_softmax(logits, -1)
        for at in range(first, end):
            place = at - begin + len(before)
            total -= rows[place - 1, window[place]].item()
            count += 1
    return {"context": context, "stride": stride, "tokens": count, "nll": total / count}


class Counter:
    """Sums of squares by the names of GGUF files."""

    def __init__(self):
        self.sums = {}

    def add(self, name, rows, expert=0, experts=1):
        rows = rows.reshape(-1, rows.shape[-1]).double()
        entry = self.sums.setdefault(name, ([0] * experts, torch.zeros(experts, rows.shape[-1], dtype=torch.double)))
        entry[0][expert] += rows.shape[0]
        entry[1][expert] += (rows * rows).sum(0)


NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def watch(model, counter):
    for layer_index, layer in enumerate(model.model.layers):
        at = f"blk.{layer_index}."
        for path, name in NAMES.items():
            try:
                module = layer.get_submodule(path)
            except AttributeError:
                continue
            module.register_forward_pre_hook(
                lambda module, args, name=f"{at}{name}.weight": counter.add(name, args[0])
            )
        if not hasattr(layer.mlp, "experts"):
            continue
        layer.mlp.gate.register_forward_pre_hook(
            lambda module, args, name=f"{at}ffn_gate_inp.weight": counter.add(name, args[0])
        )
        experts = layer.mlp.experts

        def forward(hidden, chosen, weights, experts=experts, at=at):
            out = torch.zeros_like(hidden)
            for expert in range(experts.num_experts):
                row, place = torch.where(chosen == expert)
                inputs = hidden[row]
                gate, up = (inputs @ experts.gate_up_proj[expert].T).chunk(2, -1)
                units = experts.act_fn(gate) * up
                for name, rows in (("gate", inputs), ("up", inputs), ("down", units)):
                    counter.add(f"{at}ffn_{name}_exps.weight", rows, expert, experts.num_experts)
                out.index_add_(0, row, units @ experts.down_proj[expert].T * weights[row, place, None])
            return out

        experts.forward = forward
    tied = model.config.tie_word_embeddings
    model.lm_head.register_forward_pre_hook(
        lambda module, args: counter.add("token_embd.weight" if tied else "output.weight", args[0])
    )


def imatrix(model, ids, begin_id):
    counter = Counter()
    watch(model, counter)
    before = [] if begin_id is None else [begin_id]
    step = IMATRIX_CONTEXT - len(before)
    for begin in range(0, len(ids), step):
        model(torch.tensor([before + ids[begin : begin + step]]))
    return {
        name: {
            "counts": counts,
            "totals": sums.sum(-1).tolist(),
            "first": sums[:, 0].tolist(),
            "last": sums[:, -1].tolist(),
        }
        for name, (counts, sums) in sorted(counter.sums.items())
    }


@torch.no_grad()
def main():
    write_byte_tokenizer(HERE / "byte_tokenizer.json")
    text = TEXT.read_text()
    result = {}
    for folder, (vocabulary, count) in MODELS.items():
        tokenizer = Tokenizer.from_file(str(ROOT / vocabulary))
        ids = tokenizer.encode(text, add_special_tokens=False).ids[:count]
        whole = tokenizer.encode("a").ids
        begin_id = whole[0] if len(whole) > 1 else None
        model = load(str(ROOT / folder))
        scores = [perplexity(model, ids, begin_id, context, stride) for context, stride in WINDOWS]
        result[folder] = {
            "tokens": count,
            "perplexity": scores,
            "imatrix": {"context": IMATRIX_CONTEXT, "tensors": imatrix(model, ids, begin_id)},
        }
    (HERE / "text.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
