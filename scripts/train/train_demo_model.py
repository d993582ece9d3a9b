#!/usr/bin/env python3
"""Trains checkpoints/bard, the small Llama that the demo and the tests run on.

    pip install -r scripts/train/requirements.txt
    scripts/train/train_demo_model.py --tokenizer-only     # CPU, a second: tokenizer files
    scripts/train/train_demo_model.py                      # one GPU, about a minute: the rest

The first 95% of tinyshakespeare.txt (public domain) train the tokenizer and the model; the last 5%
are held out and only measured. The tokenizer is trained once, and training the model reuses its
file as it stands, so that ids never change under weights. The folder is an ordinary Hugging Face
one.
"""

import argparse
import json
import math
import pathlib
import platform
import random
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

END_OF_TEXT = "<|endoftext|>"  # both BOS and EOS, as in GPT-2: it separates excerpts
VOCAB_SIZE = 2048
CONTEXT = 1024
HELD_OUT = 0.05

# The model knows plays, not chats: a conversation is rendered as a dialogue between two speakers,
# which needs no tokens that training never saw.
CHAT_TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {{- message['content'] + '\\n\\n' }}
    {%- elif message['role'] == 'assistant' %}
        {{- 'ROMEO:\\n' + message['content'] + '\\n\\n' }}
    {%- else %}
        {{- 'JULIET:\\n' + message['content'] + '\\n\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'ROMEO:\\n' }}
{%- endif %}
"""


def split_corpus(path):
    """The text to train on and the held-out text. The corpus is ASCII: a character is a byte."""
    text = path.read_text(encoding="ascii")
    cut = int(len(text) * (1 - HELD_OUT))
    return text[:cut], text[cut:]


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def train_tokenizer(train_text, out):
    """Byte-level BPE with GPT-2's pre-tokenizer pattern; every encoding starts with END_OF_TEXT."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [train_text],
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A",
        pair=f"{END_OF_TEXT} $A {END_OF_TEXT}:1 $B:1",
        special_tokens=[(END_OF_TEXT, tokenizer.token_to_id(END_OF_TEXT))],
    )
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    tokenizer.save(str(out / "tokenizer.json"), pretty=True)
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": END_OF_TEXT,
            "eos_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": False,
            "model_max_length": CONTEXT,
        },
    )
    (out / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def speech_starts(ids, newline):
    """Indices in ids at which a speech begins: 0, and wherever an empty line has just ended."""
    return [0] + [i for i in range(2, len(ids)) if ids[i - 2] == newline and ids[i - 1] == newline]


class Windows:
    """Random training windows of CONTEXT + 1 ids.

    Half are packed excerpts: END_OF_TEXT, then whole speeches, so that the model begins where a
    prompt begins and learns to end an answer. Half are plain crops, every other one with
    END_OF_TEXT in front, as in the evaluation.
    """

    MIN_EXCERPT = 256  # shorter ones would teach the model to end most answers early

    def __init__(self, ids, newline, separator, seed):
        self.ids = ids
        self.starts = speech_starts(ids, newline)
        self.separator = separator
        self.random = random.Random(seed)

    def excerpt(self):
        first = self.random.randrange(len(self.starts) - 1)
        limit = self.starts[first] + self.random.randint(self.MIN_EXCERPT, CONTEXT - 1)
        end = first + 1  # at least one speech, at most `limit`
        while end + 1 < len(self.starts) and self.starts[end + 1] <= limit:
            end += 1
        return self.ids[self.starts[first] : self.starts[end] - 2]  # without the empty line

    def window(self):
        if self.random.random() < 0.5:
            packed = []
            while len(packed) <= CONTEXT:
                packed += [self.separator] + self.excerpt()
            return packed[: CONTEXT + 1]
        start = self.random.randrange(len(self.ids) - CONTEXT)
        window = self.ids[start : start + CONTEXT + 1]
        if self.random.random() < 0.5:
            window = [self.separator] + window[:-1]
        return window

    def batch(self, size):
        return [self.window() for _ in range(size)]


def evaluate(model, ids, characters, separator, device):
    """Nats per character of `ids`, in windows of CONTEXT that each begin with END_OF_TEXT.

    Every id is predicted exactly once; a window knows nothing of the one before. Returns the mean
    over all ids, and over those predicted at positions 0-511 and 512-1023 of full windows.
    `characters` gives the number of characters of each id.
    """
    import torch
    import torch.nn.functional as F

    def nats_and_characters(windows):
        targets = torch.tensor(windows, device=device)
        first = torch.full((len(windows), 1), separator, device=device)
        logits = model(input_ids=torch.cat([first, targets[:, :-1]], 1), use_cache=False).logits
        nats = F.cross_entropy(logits.float().transpose(1, 2), targets, reduction="none")
        counts = torch.tensor([[characters[i] for i in w] for w in windows], device=device)
        return nats.double(), counts.double()

    full = [ids[i : i + CONTEXT] for i in range(0, len(ids) - CONTEXT + 1, CONTEXT)]
    rest = ids[len(full) * CONTEXT :]
    half = CONTEXT // 2
    model.eval()
    with torch.no_grad():
        nats, counts = nats_and_characters(full)
        rest_nats, rest_counts = nats_and_characters([rest]) if rest else (nats[:0], counts[:0])
    return {
        "all": ((nats.sum() + rest_nats.sum()) / (counts.sum() + rest_counts.sum())).item(),
        "positions 0-511": (nats[:, :half].sum() / counts[:, :half].sum()).item(),
        "positions 512-1023": (nats[:, half:].sum() / counts[:, half:].sum()).item(),
    }


def build_model(vocab, separator, dropout):
    """A LlamaForCausalLM; dropout after the embedding and both halves of a layer comes from hooks.

    Llama itself has dropout on attention only. Hooks are not saved: the files hold a plain Llama.
    """
    import torch.nn.functional as F
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=8,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            attention_dropout=dropout,
            bos_token_id=separator,
            eos_token_id=separator,
            pad_token_id=None,
        )
    )

    def drop(module, _, output):
        if isinstance(output, tuple):
            return (F.dropout(output[0], dropout, module.training), *output[1:])
        return F.dropout(output, dropout, module.training)

    model.model.embed_tokens.register_forward_hook(drop)
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(drop)
        layer.mlp.register_forward_hook(drop)
    return model


def learning_rate(step, args):
    """Linear warm-up, then a cosine down to a tenth."""
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def train(model, windows, held_out_loss, args):
    """Trains `model`; returns the averaged copy with the lowest held-out loss, and the run's facts.

    The copy is a moving average of the weights, which is smoother to select on than the weights.
    """
    import copy

    import torch
    import torch.nn.functional as F

    averaged = copy.deepcopy(model).requires_grad_(False)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": args.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
        fused=args.device == "cuda",
    )
    best, best_step, best_weights = math.inf, 0, None
    began = time.monotonic()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        model.train()
        ids = torch.tensor(windows.batch(args.batch)).to(args.device, non_blocking=True)
        with torch.autocast(args.device, torch.bfloat16):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        decay = min(args.average, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)

        if (step + 1) % args.evaluate_every == 0 or step + 1 == args.steps:
            held_out = held_out_loss(averaged)
            kept = held_out["all"] < best
            if kept:
                best, best_step = held_out["all"], step + 1
                best_weights = copy.deepcopy(averaged.state_dict())
            seconds = time.monotonic() - began
            rate = (step + 1) * args.batch * CONTEXT / seconds
            print(
                f"step {step + 1:5}/{args.steps}  {seconds:4.0f} s  {rate / 1e3:4.0f}k tokens/s  "
                f"training {loss.item():.3f} nats/token  held out {held_out['all']:.4f} nats/"
                f"character, {held_out['positions 512-1023']:.4f} at positions 512-1023"
                f"{'  kept' if kept else ''}",
                flush=True,
            )
    averaged.load_state_dict(best_weights)
    averaged.config.attention_dropout = 0.0
    return averaged, {
        "best_step": best_step,
        "seconds": time.monotonic() - began,
        "training_tokens": best_step * args.batch * CONTEXT,
    }


def sample(model, tokenizer, prompt, seed, device):
    import torch

    torch.manual_seed(seed)
    ids = torch.tensor([tokenizer.encode(prompt).ids], device=device)
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=220, pad_token_id=0
    )
    return tokenizer.decode(out[0].tolist())


def model_card(args, run, losses, sizes, excerpt):
    import torch
    import transformers

    machine = torch.cuda.get_device_name() if args.device == "cuda" else platform.machine()
    tokens_per_character = sizes["held_out_tokens"] / sizes["characters"]
    fill = {
        "all": f"{losses['all']:.3f}",
        "first": f"{losses['positions 0-511']:.3f}",
        "second": f"{losses['positions 512-1023']:.3f}",
        "perplexity": f"{math.exp(losses['all'] / tokens_per_character):.1f}",
        "machine": machine,
        "versions": f"PyTorch {torch.__version__}, transformers {transformers.__version__}",
        "command": " ".join(["scripts/train/train_demo_model.py", *sys.argv[1:]]),
        "epochs": f"{run['training_tokens'] / sizes['train_tokens']:.0f}",
        "excerpt": "\n".join("    " + line if line else "" for line in excerpt.split("\n")),
        **{k: f"{v:,.0f}" for k, v in (run | sizes).items()},
        **{k: v for k, v in vars(args).items()},
    }
    return (HERE / "model_card.md.in").read_text(encoding="utf-8").format(**fill)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "checkpoints" / "bard")
    parser.add_argument("--corpus", type=pathlib.Path, default=HERE / "tinyshakespeare.txt")
    parser.add_argument("--tokenizer-only", action="store_true", help="write its files and stop")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--batch", type=int, default=16, help="windows of 1,024 tokens a step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=50, help="steps")
    parser.add_argument("--weight-decay", type=float, default=1.0)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--average", type=float, default=0.99, help="decay of the averaged weights")
    parser.add_argument("--evaluate-every", type=int, default=50, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse_arguments()
    train_text, held_out_text = split_corpus(args.corpus)
    if args.tokenizer_only:
        args.out.mkdir(parents=True, exist_ok=True)
        train_tokenizer(train_text, args.out)
        print(f"wrote the tokenizer to {args.out}")
        return

    import torch
    from tokenizers import Tokenizer
    from transformers import GenerationConfig

    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    separator = tokenizer.token_to_id(END_OF_TEXT)
    newline = tokenizer.encode("\n", add_special_tokens=False).ids[0]
    train_ids = tokenizer.encode(train_text, add_special_tokens=False).ids
    held_out_ids = tokenizer.encode(held_out_text, add_special_tokens=False).ids
    # The corpus is ASCII, so that one character of a byte-level token is one character of the text.
    characters = [len(tokenizer.id_to_token(i)) for i in range(tokenizer.get_vocab_size())]
    assert sum(characters[i] for i in held_out_ids) == len(held_out_text)

    torch.manual_seed(args.seed)
    model = build_model(tokenizer.get_vocab_size(), separator, args.dropout).to(args.device)
    sizes = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "train_tokens": len(train_ids),
        "held_out_tokens": len(held_out_ids),
        "characters": len(held_out_text),
    }
    print(", ".join(f"{k.replace('_', ' ')} {v:,}" for k, v in sizes.items()), flush=True)

    def held_out_loss(candidate):
        return evaluate(candidate, held_out_ids, characters, separator, args.device)

    windows = Windows(train_ids, newline, separator, args.seed)
    model, run = train(model, windows, held_out_loss, args)
    # Measured on what is saved: weights rounded to bfloat16, arithmetic in float32.
    model = model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(
        bos_token_id=separator,
        eos_token_id=separator,
        do_sample=True,
        temperature=0.8,
        top_k=50,
        top_p=0.95,
    )
    model.save_pretrained(args.out)
    (args.out / "model.safetensors").chmod(0o644)
    model = model.float()
    losses = held_out_loss(model)
    excerpt = sample(model, tokenizer, "ROMEO:", 1, args.device)
    card = model_card(args, run, losses, sizes, excerpt)
    (args.out / "README.md").write_text(card, encoding="utf-8")
    print(excerpt)
    measured = ", ".join(f"{k} {v:.4f}" for k, v in losses.items())
    print(f"kept step {run['best_step']} of {args.steps}; nats per held-out character: {measured}")


if __name__ == "__main__":
    main()
