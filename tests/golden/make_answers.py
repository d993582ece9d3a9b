#!/usr/bin/env python3
"""Writes answers.json: whole answers of bard, as a client must get them.

    pip install numpy tokenizers==0.23.2
    tests/golden/make_answers.py             # about a minute

The logits are numpy_llama.py's, held against the committed ones of transformers before they are
used; what is drawn from them is sampling_oracle.py's. README.md describes the file.
"""

import base64
import itertools
import json
import pathlib

import numpy as np
from numpy_llama import Llama
from sampling_oracle import (
    DEFAULTS,
    EXTRAS,
    adjusted,
    as_float32,
    draw,
    log_softmax,
    next_mu,
    survivors,
    top,
    uniform,
)
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BARD = ROOT / "checkpoints" / "bard"
CORPUS = ROOT / "scripts" / "train" / "tinyshakespeare.txt"
HELD_OUT_CHARACTERS = 55770
WINDOWS, WINDOW = 4, 511  # predicted tokens
EOS = 0
DEFAULT_BREAKERS = [b"\n", b":", b'"', b"*"]

# A draw that noise of this size in the logits could change is refused; float32 errs by some 1e-5.
NOISE = 5e-4
NOISY_DRAWS = 6


class TooClose(Exception):
    """Rounding could decide this answer."""


def check_model(model):
    index = json.loads((HERE / "logits.json").read_text())
    for case in index["cases"]:
        if case["model"] != "checkpoints/bard":
            continue
        rows, vocab = case["rows"], case["vocab"]
        golden = np.fromfile(
            HERE / "logits.f32", "<f4", rows * vocab, offset=case["offset_bytes"]
        ).reshape(rows, vocab)
        logits, _ = model.run(case["prompt"] + case["decode"], None)
        wrong = np.linalg.norm(logits[-rows:] - golden, axis=1) / np.linalg.norm(golden, axis=1)
        assert wrong.max() < 2e-6, wrong.max()


def bytes_of_tokens():
    """[id]: the bytes that a token stands for, by GPT-2's way to write bytes as letters."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in plain]
    letters |= {chr(256 + i): byte for i, byte in enumerate(others)}
    spec = json.loads((BARD / "tokenizer.json").read_text())
    table = {
        i: bytes(letters[c] for c in text) for text, i in spec["model"]["vocab"].items() if i != EOS
    }
    return [table.get(i, b"") for i in range(len(table) + 1)]


class Answerer:
    def __init__(self):
        self.model = Llama(BARD)
        check_model(self.model)
        self.tokenizer = Tokenizer.from_file(str(BARD / "tokenizer.json"))
        self.bytes = bytes_of_tokens()
        self.noise = np.random.default_rng(1)

    def params(self, request, sample):
        sampling = dict(request["sampling"])
        ignore_eos = sampling.pop("ignore_eos", False)
        sampling.pop("logprobs", None)
        breakers = DEFAULT_BREAKERS
        if "dry_breakers" in sampling:
            encoded = sampling.pop("dry_breakers").get("breaker", [])
            breakers = [base64.b64decode(text) for text in encoded]
            assert all(len(breaker) == 1 for breaker in breakers)  # no spellings over tokens
        biases = [[bias["id"], bias["bias"]] for bias in sampling.pop("logit_bias", [])]
        params = DEFAULTS | EXTRAS | as_float32(sampling) | {"sample": sample}
        params["logit_bias"] = as_float32(biases)
        params["stop_ids"] = ([] if ignore_eos else [EOS]) + request.get("stop_ids", [])
        if params["dry_multiplier"] > 0:
            params["dry_breakers"] = [
                [i] for i, text in enumerate(self.bytes) if any(b in text for b in breakers)
            ]
        return params

    def choose(self, logits, params, prompt, output, mu):
        """The next token, and mirostat's state after it."""
        u = uniform(params["seed"], len(output), params["sample"])
        kept = survivors(adjusted(logits, params, prompt, output), params, mu, exact=True)
        return (chosen := draw(kept, u, exact=True)), next_mu(params, mu, kept, chosen)

    def answer(self, request, sample):
        params = self.params(request, sample)
        prompt, output, rows = request["prompt_tokens"]["ids"], [], []
        stops = [base64.b64decode(stop) for stop in request.get("stop", [])]
        mu, text, reason = 2 * params["mirostat_tau"], b"", "REASON_MAX_TOKENS"
        logits, cache = self.model.run(prompt, None)
        while len(output) < request["max_tokens"] and reason == "REASON_MAX_TOKENS":
            row = logits[-1].tolist()
            chosen, after = self.choose(row, params, prompt, output, mu)
            for _ in range(NOISY_DRAWS):
                noisy = logits[-1] + self.noise.uniform(-NOISE, NOISE, len(row))
                if self.choose(noisy.tolist(), params, prompt, output, mu)[0] != chosen:
                    raise TooClose(f"token {len(output)} of sample {sample}")
            mu = after
            output.append(chosen)
            rows.append(logprobs_of(row, chosen, request["sampling"].get("logprobs")))
            if chosen in params["stop_ids"]:
                reason = "REASON_EOS"
                break
            text += self.bytes[chosen]
            found = [text.find(stop) for stop in stops if stop in text]
            if found:
                text, reason = text[: min(found)], "REASON_STOP"
            logits, cache = self.model.run([chosen], cache)
        answer = {"reason": reason, "text": text.decode("ascii"), "tokens": output}
        return answer | ({"logprobs": rows} if "logprobs" in request["sampling"] else {})

    def case(
        self, name, prompt, n=1, max_tokens=24, stop=(), stop_ids=(), prompt_logprobs=None, **sampling
    ):
        request = {"prompt_tokens": {"ids": self.tokenizer.encode(prompt).ids}}
        request |= {"max_tokens": max_tokens, "n": n}
        if stop:
            request["stop"] = [base64.b64encode(s.encode()).decode() for s in stop]
        if stop_ids:
            request["stop_ids"] = list(stop_ids)
        if prompt_logprobs is not None:
            request["prompt_logprobs"] = prompt_logprobs
        # bard's own defaults stay away.
        request["sampling"] = {"temperature": 0.8, "top_k": 0, "top_p": 1} | sampling
        seeds = range(100) if request["sampling"]["temperature"] > 0 else [0]
        for seed in seeds:
            request["sampling"]["seed"] = seed
            try:
                answers = [self.answer(request, sample) for sample in range(n)]
                break
            except TooClose as error:
                reason = error
        else:
            raise TooClose(f"{name}: {reason}")
        case = {"name": name, "request": request, "answers": answers}
        if prompt_logprobs is not None:
            ids = request["prompt_tokens"]["ids"]
            logits, _ = self.model.run(ids, None)
            case["prompt_logprobs"] = [
                logprobs_of(row.tolist(), i, prompt_logprobs) for row, i in zip(logits, ids[1:])
            ]
        print(f"{name} (seed {seed})")
        for answer in answers:
            print(f"    {answer['reason']} {answer['text']!r}")
        return case


def logprobs_of(row, chosen, count):
    """[logprob of the chosen id, [[id, logprob] of the most likely ones]]"""
    if count is None:
        return None
    logprobs = log_softmax(row)
    likely = top(logprobs, count + 1)
    if any(a[1] - b[1] < NOISE for a, b in itertools.pairwise(likely)):
        raise TooClose("the order of the most likely tokens")
    return [float(f"{logprobs[chosen]:.9g}"), likely[:count]]


SPEECH = "ROMEO:\nWhat say you, cousin? Speak, and tell me true.\n\nJULIET:\n"
CIRCLE = "ROMEO:\nI am a man, and I am a man of it.\n\n" * 2


def bias(**by_id):
    return [{"id": int(i[1:]), "bias": value} for i, value in by_id.items()]


def cases(answerer):
    case = answerer.case
    yield case(
        "three samples of one seed, their log probabilities and the prompt's",
        SPEECH,
        n=3,
        prompt_logprobs=2,
        temperature=1.0,
        top_k=40,
        top_p=0.95,
        logprobs=2,
    )
    yield case("each sample stops where its own text does", SPEECH, n=4, stop=["\n"], max_tokens=32)
    greedy = case("greedy", SPEECH, temperature=0.0, max_tokens=16)
    yield greedy
    yield case(
        "a bias makes the unlikely token the greedy choice",
        SPEECH,
        temperature=0.0,
        max_tokens=6,
        logit_bias=bias(_1999=100.0),
    )
    banned = sorted(set(greedy["answers"][0]["tokens"]))
    without = case(
        "a bias bans every token of the greedy answer",
        SPEECH,
        temperature=0.0,
        max_tokens=12,
        logit_bias=[{"id": i, "bias": -100.0} for i in banned],
    )
    assert not set(banned) & set(without["answers"][0]["tokens"])
    yield without
    eos = {"logit_bias": bias(_0=100.0)}
    yield case("an end at once", SPEECH, **eos)
    yield case("min_tokens hold back the end that a bias wants", SPEECH, n=2, min_tokens=5, **eos)
    ignored = case(
        "an end that is ignored stands in the middle",
        SPEECH,
        temperature=0.0,
        max_tokens=10,
        ignore_eos=True,
        frequency_penalty=50.0,
        **eos,
    )
    assert EOS in ignored["answers"][0]["tokens"][:-1]
    yield ignored
    yield case("typical_p", SPEECH, n=2, temperature=1.0, typical_p=0.4, max_tokens=16)
    yield case("mirostat", SPEECH, n=2, temperature=1.0, mirostat_tau=4.0, mirostat_eta=0.4)
    yield case(
        "all penalties",
        SPEECH,
        n=2,
        min_p=0.02,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        frequency_penalty=0.25,
    )
    circle = case("bard goes in a circle", CIRCLE, temperature=0.0, max_tokens=20)
    assert circle["answers"][0]["text"] in CIRCLE
    yield circle
    dry = {"temperature": 0.0, "max_tokens": 20, "dry_multiplier": 2.0}
    letter = base64.b64encode(b"O").decode()
    texts = {circle["answers"][0]["text"]}
    for name, more in (
        ("DRY", {}),
        ("DRY without breakers", {"dry_breakers": {}}),
        ("DRY with a breaker of the client's", {"dry_breakers": {"breaker": [letter]}}),
        ("DRY, long repeats only", {"dry_allowed_length": 7, "dry_base": 3.0}),
    ):
        broken = case(name, CIRCLE, **dry, **more)
        texts.add(broken["answers"][0]["text"])
        yield broken
    assert len(texts) == 5
    tokens = greedy["answers"][0]["tokens"]
    stop = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True, "stop_ids": [7, tokens[5]]}
    stopped = case("a stop id ends an answer that ignores the model's end", SPEECH, **stop)
    assert stopped["answers"][0]["tokens"] == tokens[: tokens.index(tokens[5]) + 1]
    yield stopped
    held_back = case("min_tokens hold back a stop id", SPEECH, min_tokens=8, **stop)
    assert 8 <= len(held_back["answers"][0]["tokens"])
    yield held_back


def held_out(answerer):
    """Windows of the text that bard was not trained on, with their mean negative log likelihood."""
    text = CORPUS.read_text(encoding="ascii")[-HELD_OUT_CHARACTERS:]
    ids = answerer.tokenizer.encode(text).ids[1:]
    for i in range(WINDOWS):
        window = [EOS, *ids[i * WINDOW : (i + 1) * WINDOW]]
        logits, _ = answerer.model.run(window[:-1], None)
        rows = [log_softmax(row.tolist())[token] for row, token in zip(logits, window[1:])]
        yield {"ids": window, "nll": float(f"{-sum(rows) / WINDOW:.9g}")}


def main():
    answerer = Answerer()
    sections = []
    for name, rows in (("cases", cases(answerer)), ("held_out", held_out(answerer))):
        lines = ",\n".join("    " + json.dumps(row) for row in rows)
        sections.append(f'  "{name}": [\n{lines}\n  ]')
    text = "{\n" + ",\n".join(sections) + "\n}\n"
    (HERE / "answers.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
