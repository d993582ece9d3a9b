"""Holds tokenizers of published models, as packages of PyPI carry them, against these packages.

  bazel build //tests/tokenizers:encode_texts
  python3 tests/tokenizers/check_published.py

Needs mistral-common (SentencePiece models of Mistral v1, v2, v3 and v7, and Tekken), llama-models
(Llama 3 and 4), sentencepiece and tiktoken. Vocabularies of tiktoken's kind become a tokenizer.json
first, as converters write it. Exit status 1: an id differs.
"""

import base64
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import sentencepiece
import tiktoken
from tiktoken.load import load_tiktoken_bpe

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "model/tokenizer/testdata"))
import make_tokenizer_table as tables

MIXED_CASE = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
              r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
              r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
              r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|"
              r"\s+(?!\S)|\s+")


def package(name):
  return pathlib.Path(importlib.util.find_spec(name).origin).parent


def alphabet():
  """GPT-2's, by byte."""
  printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
  others = [b for b in range(256) if b not in printable]
  return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


ALPHABET = alphabet()


def spelled(token):
  return "".join(ALPHABET[b] for b in token)


def tokenizer_json(ranks, pattern, first_id):
  """`ranks`: bytes of tokens and their ranks, by which pairs are joined; ids begin at `first_id`."""
  merges = []
  for token, rank in ranks.items():
    merges += [(rank, ranks[token[:cut]], ranks[token[cut:]], token[:cut], token[cut:])
               for cut in range(1, len(token)) if token[:cut] in ranks and token[cut:] in ranks]
  merges.sort(key=lambda merge: merge[:3])
  byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
  split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
  return {"added_tokens": [], "normalizer": None, "post_processor": None, "decoder": byte_level,
          "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
          "model": {"type": "BPE", "ignore_merges": True,
                    "vocab": {spelled(t): first_id + rank for t, rank in ranks.items()},
                    "merges": [[spelled(a), spelled(b)] for *_, a, b in merges]}}


def published():
  """Name, files of a folder, and the encoder of each."""
  data = package("mistral_common") / "data"
  for path in sorted(data.glob("*.model*")):
    model = path.read_bytes()
    encoder = sentencepiece.SentencePieceProcessor(model_proto=model)
    yield path.name, {"tokenizer.model": model}, encoder.encode
  from mistral_common.tokens.tokenizers.tekken import Tekkenizer
  for path in sorted(data.glob("tekken*.json")):
    tekken = json.loads(path.read_text())
    config = tekken["config"]
    specials = config["default_num_special_tokens"]
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in tekken["vocab"]
             if token["rank"] < config["default_vocab_size"] - specials}
    document = tokenizer_json(ranks, config["pattern"], specials)
    encoder = Tekkenizer.from_file(path)
    yield (path.name, {"tokenizer.json": json.dumps(document).encode()},
           lambda text, encoder=encoder: encoder.encode(text, bos=False, eos=False))
  for name, pattern in (("llama3", tables.LLAMA3), ("llama4", MIXED_CASE)):
    ranks = load_tiktoken_bpe(str(package("llama_models") / name / "tokenizer.model"))
    encoder = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    yield (f"{name}/tokenizer.model",
           {"tokenizer.json": json.dumps(tokenizer_json(ranks, pattern, 0)).encode()},
           encoder.encode_ordinary)


def main():
  texts = tables.all_texts() + list(tables.random_texts(2000, 7))
  failed = False
  for name, files, encode in published():
    with tempfile.TemporaryDirectory() as folder:
      for file, content in files.items():
        (pathlib.Path(folder) / file).write_bytes(content)
      run = subprocess.run([ROOT / "bazel-bin/tests/tokenizers/encode_texts", folder],
                           input=json.dumps(texts), capture_output=True, text=True, check=False)
    if run.returncode != 0:
      print(f"{name}: {run.stderr.strip()}")
      failed = True
      continue
    rows = json.loads(run.stdout)
    differ = [(text, row["ids"], list(encode(text))) for text, row in zip(texts, rows)
              if row["ids"] != list(encode(text))]
    print(f"{name}: {len(texts)} texts, {sum(len(row['ids']) for row in rows)} tokens, "
          f"{len(differ)} texts differ")
    for text, ours, theirs in differ[:3]:
      print(f"  {text!r}\n    here  {ours}\n    there {theirs}")
    failed |= bool(differ)
  sys.exit(failed)


if __name__ == "__main__":
  main()
