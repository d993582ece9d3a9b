"""Trains SentencePiece models on make_tokenizer_table.py's sentences, and writes texts and their ids
by the `sentencepiece` library (0.2.3 was used) to sentence_piece_table.json.

  python3 make_sentence_piece_table.py

The file holds one entry a model: the name, the model's bytes in base64 and rows. A row has the
text, its ids and what they decode to behind another token, where none of them is unknown.
"""

import base64
import io
import json
import pathlib

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

import make_tokenizer_table as tables

HERE = pathlib.Path(__file__).parent
LATIN = [tables.unescape(s) for s in tables.SENTENCES[:9] + tables.SENTENCES[-9:]]
TEXTS = tables.SENTENCES + tables.NORMALIZED_TEXTS + tables.SPECIALS
EXTRA = ["", " ", "   ", "\u2581", " \u2581 ", "a", " a", "a ", "  a  b  ", "\u3000x\u3000 \u00a0y\t\tz\n\nw",
         "<s>", "a<s>b", "<sym>", "a<sym>b", " <sym> ", "a <sym>  <sym>b<symbol>", "<two words>",
         "x<two words>y", "\u00df\u00df\u00df a \u6f22\u6f22 b", "\U0001f44d\U0001f44d\u6f22", "\ufb01\u2460\uff21\u30ab\uff9e", "the the  the",
         "\u0000", "a\u0000b", "\u200b\u200d\u00ad", "<0x41>", "theking", "qqqqqqqq", "thou and I", "the end Ind I", "oooooooooo", "e\u0301e\u0301"]

# The maps that the library brings have 240 KB; rules of our own are enough for all models but one.
RULES = [("\uff21", "A"), ("\ufb01", "fi"), ("\ufb00", "ff"), ("\u2460", "1"), ("\u3000", " "), ("\u00a0", " "), ("\t", " "),
         ("\n", " "), ("\u200b", ""), ("\u00ad", ""), ("e\u0301", "\u00e9"), ("e\u0301e", "[e]"), ("\u00df", "ss"),
         ("\u33a8", "m/s2"), ("\ufdfa", " \u0635\u0644\u0649 "), ("\uff76\uff9e", "\u30ac"), ("R", "r"), ("the", "THE")]

RULES_FILE = str(HERE / "rules")
COMMON = dict(hard_vocab_limit=False, num_threads=1, minloglevel=2, character_coverage=0.995,
              user_defined_symbols=["<sym>", "<symbol>", "<two words>", "hou", "nd I", "e e", "oooo"], pad_id=-1)
MODELS = {
    "BPE": dict(model_type="bpe", vocab_size=420, normalization_rule_tsv=RULES_FILE),
    "BPE as Llama has it": dict(
        model_type="bpe", vocab_size=700, normalization_rule_name="identity", byte_fallback=True,
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True),
    "BPE as Gemma has it": dict(
        model_type="bpe", vocab_size=700, normalization_rule_name="identity", byte_fallback=True,
        remove_extra_whitespaces=False, add_dummy_prefix=False, split_digits=True),
    "unigram": dict(model_type="unigram", vocab_size=420, normalization_rule_name="nmt_nfkc_cf"),
    "unigram with bytes": dict(model_type="unigram", vocab_size=650, byte_fallback=True,
                               normalization_rule_tsv=RULES_FILE, remove_extra_whitespaces=False),
    "unigram, verbatim": dict(model_type="unigram", vocab_size=420, add_dummy_prefix=False,
                              normalization_rule_name="identity"),
}


def slim(model):
  """Without what encoding does not need."""
  message = sentencepiece_model_pb2.ModelProto.FromString(model)
  message.normalizer_spec.ClearField("normalization_rule_tsv")
  return message.SerializeToString()


def rows(model):
  processor = sentencepiece.SentencePieceProcessor(model_proto=model)
  before = [processor.piece_to_id("a")]
  texts = [tables.unescape(s) for s in TEXTS] + EXTRA
  texts += [t for t in tables.long_runs() if len(t) < 40] + list(tables.random_texts(40, 4))
  for text in dict.fromkeys(texts):
    ids = processor.encode(text)
    row = {"text": text, "ids": ids}
    if processor.unk_id() not in ids:
      row["decoded"] = processor.decode(before + ids)[1:]
    yield row


def main():
  lines = []
  pathlib.Path(RULES_FILE).write_text("".join(
      " ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
      for a, b in RULES))
  for name, options in MODELS.items():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LATIN * 3), model_writer=model, **{**COMMON, **options})
    model = slim(model.getvalue())
    body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows(model))
    lines.append(f'{{"name": {json.dumps(name)}, "model": "{base64.b64encode(model).decode()}", '
                 f'"rows": [\n{body}]}}')
  pathlib.Path(RULES_FILE).unlink()
  (HERE / "sentence_piece_table.json").write_text("[\n" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
  main()
