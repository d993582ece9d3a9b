#!/usr/bin/env python3
"""Writes embeddings.json: what transformers' hidden states of bard pool to.

    pip install -r scripts/train/requirements.txt
    tests/golden/make_embeddings.py    # CPU, seconds

In float32 with the weights upcast; hidden states are those behind the final norm, and vectors are
as they are, not normalised. README.md describes the files.
"""

import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PROMPTS = [
    "O",
    "Shall I compare thee to a summer's day?",
    "Now is the winter of our discontent made glorious summer by this sun of York. " * 12,
]


def main():
    path = ROOT / "checkpoints" / "bard"
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"))
    model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    cases = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        with torch.no_grad():
            rows = model(torch.tensor([ids])).last_hidden_state[0].double()
        cases.append(
            {
                "prompt": ids,
                "last": [float(f"{x:.7g}") for x in rows[-1].tolist()],
                "mean": [float(f"{x:.7g}") for x in rows.mean(dim=0).tolist()],
            }
        )
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({"made_with": made_with, "cases": cases})
    (HERE / "embeddings.json").write_text(text.replace('{"prompt"', '\n{"prompt"') + "\n")


if __name__ == "__main__":
    main()
