#!/usr/bin/env python3
"""Writes sampling.json: what the sampler must choose, computed by an implementation of its own.

    tests/golden/make_sampling_table.py      # a second, Python's standard library only

Written from the contract in README.md, in float64 and without a glance at the C++, one plain loop
after the other. Logits and parameters are float32 numbers, as the sampler gets them. A case whose
outcome a float32 sampler could miss by rounding alone is refused, unless its numbers are exact.
"""

import json
import math
import pathlib
import random
import struct

HERE = pathlib.Path(__file__).resolve().parent
MARGIN = 1e-5  # between a threshold and what is compared with it; float32 sums err by about 1e-7
NEGLIGIBLE = 1e-9  # survivors below this are not listed

DEFAULTS = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "seed": 0,
}


def philox4x32_10(counter, key):
    """Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011)."""
    c, k, word = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & word, (a >> 32) ^ c[3] ^ k[1], a & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return c


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def uniform(seed, position):
    first = philox4x32_10((position, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[0]
    return (first >> 8) * 2.0**-24


def penalised(logits, params, prompt, output):
    scores = list(logits)
    for i in set(prompt) | set(output):
        p = params["repetition_penalty"]
        scores[i] = scores[i] / p if scores[i] > 0 else scores[i] * p
    for i in set(output):
        scores[i] -= params["presence_penalty"]
        scores[i] -= params["frequency_penalty"] * output.count(i)
    return scores


def log_softmax(logits):
    top = max(logits)
    total = math.fsum(math.exp(x - top) for x in logits)
    return [x - top - math.log(total) for x in logits]


def normalised(pairs):
    total = math.fsum(p for _, p in pairs)
    return [(i, p / total) for i, p in pairs]


class TooClose(Exception):
    """Rounding could decide this case."""


def apart(a, b, exact):
    if not exact and abs(a - b) < MARGIN:
        raise TooClose


def survivors(scores, params, exact):
    """(id, probability) in descending order of probability, ties by ascending id."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    order = [i for i in order if scores[i] != -math.inf]
    for a, b in zip(order, order[1:]):
        if scores[a] != scores[b]:
            apart(scores[a], scores[b], exact)
    if params["temperature"] == 0:
        return [(order[0], 1.0)]
    if params["top_k"] > 0:
        order = order[: params["top_k"]]
    top = scores[order[0]]
    kept = normalised([(i, math.exp((scores[i] - top) / params["temperature"])) for i in order])
    if params["top_p"] < 1:
        cumulative = 0.0
        for count, (_, p) in enumerate(kept, start=1):
            cumulative += p
            apart(cumulative, params["top_p"], exact)
            if cumulative >= params["top_p"]:
                break
        kept = normalised(kept[:count])
    if params["min_p"] > 0:
        least = params["min_p"] * kept[0][1]
        for _, p in kept:
            if p != kept[0][1]:
                apart(p, least, exact)
        kept = normalised([(i, p) for i, p in kept if p >= least])
    return kept


def draw(kept, u, exact):
    cumulative = 0.0
    for i, p in kept[:-1]:
        cumulative += p
        apart(cumulative, u, exact)
        if cumulative > u:
            return i
    return kept[-1][0]


def make_case(name, logits, prompt=(), output=(), exact=False, **changes):
    logits = [float32(x) for x in logits]
    params = DEFAULTS | changes
    for key, value in params.items():
        if isinstance(value, float):
            params[key] = float32(value)
    prompt, output = list(prompt), list(output)
    position = len(output)
    u = uniform(params["seed"], position)
    kept = survivors(penalised(logits, params, prompt, output), params, exact)
    chosen = draw(kept, u, exact)
    logprobs = log_softmax(logits)
    ranked = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    listed = [(i, p) for i, p in kept if p >= NEGLIGIBLE]
    return {
        "name": name,
        "logits": [None if x == -math.inf else x for x in logits],
        "params": params,
        "prompt": prompt,
        "output": output,
        "position": position,
        "uniform": u,
        "survivors": [i for i, _ in listed],
        "probabilities": [float(f"{p:.9g}") for _, p in listed],
        "chosen": chosen,
        "logprob": float(f"{logprobs[chosen]:.9g}"),
        "top_logprobs": [
            [i, float(f"{logprobs[i]:.9g}")] for i in ranked[:3] if logprobs[i] > -1e9
        ],
    }


def seed_for(position, low, high):
    """The first seed whose draw at `position` lies in [low, high)."""
    return next(s for s in range(1 << 20) if low <= uniform(s, position) < high)


# Seeds with a chosen draw at position 0, found by trying seeds from 0 upwards.
SEED_FOR_ZERO = 12121362
SEED_FOR_QUARTER = 23739184
SEED_FOR_HALF = 515707
SEED_FOR_LARGEST = 16390493  # 1 - 2^-24


def named_cases():
    inf = math.inf
    slope = [2.0, 1.0, 0.0, -1.0, -2.0, 0.5, -0.5, 1.5]
    flat = [0.25] * 4
    cases = []

    def add(name, logits, **arguments):
        cases.append(make_case(name, logits, **arguments))

    add("greedy", slope, temperature=0.0)
    add("greedy, tie to the lowest id", [1.0, 3.0, 2.0, 3.0, 3.0], temperature=0.0)
    add("greedy, one token", [-7.0], temperature=0.0)
    add("greedy ignores top_k, top_p, min_p", slope, temperature=0.0, top_k=3, top_p=0.1, min_p=0.9)
    add(
        "greedy after repetition",
        [2.0, 1.9, 0.0],
        temperature=0.0,
        repetition_penalty=1.2,
        prompt=[0],
    )
    add("greedy after presence", [2.0, 1.9, 0.0], temperature=0.0, presence_penalty=0.5, output=[0])
    add(
        "greedy after frequency",
        [2.0, 1.5, 1.2],
        temperature=0.0,
        frequency_penalty=0.5,
        output=[0, 1, 0, 0],
    )
    add(
        "greedy, penalties make a tie",
        [2.0, 1.0, 0.0],
        temperature=0.0,
        presence_penalty=1.0,
        output=[0],
        exact=True,
    )
    add("greedy, all negative", [-5.0, -4.0, -6.0], temperature=0.0)
    add("greedy, minus infinity", [-inf, -3.0, -inf, -2.0], temperature=0.0)

    for u in (0.02, 0.3, 0.55, 0.8, 0.97):
        add(f"plain, draw near {u}", slope, seed=seed_for(0, u - 0.015, u + 0.015))
    add("one token", [3.0], seed=5)
    add("two tokens", [0.0, 1.0], seed=7)
    add("large logits do not overflow", [1000.0, 1001.0, 999.0, -1000.0], seed=3)
    add("large negative logits do not vanish", [-1000.0, -1001.0, -999.0], seed=4)
    add("minus infinity never survives", [-inf, 1.0, -inf, 2.0, 0.0], seed=6)
    add("only one is finite", [-inf, -inf, -50.0], seed=6)
    add("a large seed", slope, seed=0xFEDCBA9876543210)
    add("a seed with high bits only", slope, seed=1 << 63)

    add("draw of exactly 0", flat, seed=SEED_FOR_ZERO, exact=True)
    add("draw on a boundary goes on: 1/4", flat, seed=SEED_FOR_QUARTER, exact=True)
    add("draw on a boundary goes on: 1/2", flat, seed=SEED_FOR_HALF, exact=True)
    add("the largest draw, flat", flat, seed=SEED_FOR_LARGEST, exact=True)
    add(
        "the largest draw finds the last of many",
        [math.sin(i) for i in range(100)],
        seed=SEED_FOR_LARGEST,
    )
    add("the largest draw, thirds", [1.0, 1.0, 1.0], seed=SEED_FOR_LARGEST)

    for temperature in (0.1, 0.7, 1.3, 2.0, 100.0):
        add(f"temperature {temperature}", slope, temperature=temperature, seed=11)
    add("a tiny temperature", [10.0, 9.0, 12.0, 11.0], temperature=1e-6, seed=2)
    add(
        "the least temperature does not overflow",
        [30.0, 90.0, 12.0, 90.0],
        temperature=2e-38,
        seed=seed_for(0, 0.6, 0.9),
        exact=True,
    )

    for k in (1, 2, 5, 8, 100):
        add(f"top_k {k} of 8", slope, top_k=k, seed=seed_for(0, 0.9, 0.95))
    add(
        "top_k, tie at the boundary",
        [0.0, 1.0, 1.0, 2.0, 1.0],
        top_k=3,
        seed=seed_for(0, 0.85, 0.95),
    )
    add("top_k of equal logits", flat, top_k=3, seed=seed_for(0, 0.7, 0.9))
    add("top_k counts finite logits only", [-inf, 0.0, -inf, 1.0], top_k=3, seed=9)

    for p in (0.01, 0.3, 0.6, 0.9, 0.99, 0.9999):
        add(f"top_p {p}", slope, top_p=p, seed=seed_for(0, 0.9, 0.95))
    add(
        "top_p reached exactly stops: 1/2 of quarters",
        flat,
        top_p=0.5,
        seed=seed_for(0, 0.6, 0.9),
        exact=True,
    )
    add(
        "top_p just above takes one more",
        flat,
        top_p=0.50001,
        seed=seed_for(0, 0.8, 0.9),
        exact=True,
    )
    add("top_p just below stops", flat, top_p=0.49999, seed=seed_for(0, 0.6, 0.9), exact=True)
    add(
        "top_p, tie at the boundary",
        [0.0, 1.0, 2.0, 1.0, 1.0],
        top_p=0.6,
        seed=seed_for(0, 0.85, 0.95),
    )
    add("top_p of 1 keeps a long tail", [8.0] + [0.0] * 7, seed=SEED_FOR_LARGEST, top_p=1.0)
    add("top_p is of what top_k left", [2.0, 1.9, 1.8, 1.7, 1.6], top_k=2, top_p=0.6, seed=21)
    add("top_p after temperature", slope, temperature=2.0, top_p=0.5, seed=22)
    add("top_p keeps at least one", [5.0, 0.0, 0.0], top_p=1e-7, seed=SEED_FOR_LARGEST)

    for p in (0.01, 0.1, 0.3, 0.7):
        add(f"min_p {p}", slope, min_p=p, seed=seed_for(0, 0.9, 0.95))
    add(
        "min_p of 1 keeps what ties with the best",
        [1.0, 3.0, 3.0, 2.0, 3.0],
        min_p=1.0,
        seed=seed_for(0, 0.8, 0.9),
    )
    add("min_p after top_k and top_p", slope, top_k=6, top_p=0.95, min_p=0.2, seed=23)
    add("min_p after temperature", slope, temperature=0.5, min_p=0.2, seed=24)
    add("min_p of 0 is off", slope, min_p=0.0, seed=SEED_FOR_LARGEST)

    add(
        "repetition divides positive, multiplies negative",
        [2.0, -2.0, 1.0, -1.0],
        prompt=[0, 1],
        repetition_penalty=1.5,
        seed=31,
    )
    add(
        "repetition counts the prompt and the output once",
        slope,
        prompt=[0, 0, 0, 7],
        output=[0, 1],
        repetition_penalty=1.3,
        seed=32,
    )
    add("repetition under 1 favours", slope, prompt=[3, 4], repetition_penalty=0.5, seed=33)
    add("repetition of a logit of 0", [0.0, 0.5, -0.5], prompt=[0], repetition_penalty=2.0, seed=34)
    add(
        "repetition of minus infinity",
        [-inf, 0.5, -0.5],
        prompt=[0, 1],
        repetition_penalty=2.0,
        seed=35,
    )
    add(
        "presence ignores the prompt",
        slope,
        prompt=[0, 1, 2],
        output=[1, 1],
        presence_penalty=0.8,
        seed=36,
    )
    add("presence under 0 favours", slope, output=[4, 4, 4], presence_penalty=-3.0, seed=37)
    add(
        "frequency counts",
        slope,
        prompt=[7, 7],
        output=[0, 0, 0, 1, 7],
        frequency_penalty=0.4,
        seed=38,
    )
    add("frequency under 0 favours", slope, output=[4, 4, 4], frequency_penalty=-1.0, seed=39)
    add(
        "repetition before presence and frequency",
        slope,
        prompt=[2],
        output=[0, 0, 7],
        repetition_penalty=1.4,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        seed=40,
    )
    add(
        "penalties before temperature",
        slope,
        output=[0, 7],
        presence_penalty=1.0,
        temperature=0.5,
        seed=41,
    )
    add("penalties before top_k", slope, output=[0, 0], frequency_penalty=2.0, top_k=2, seed=42)
    add(
        "logprobs are of the raw logits",
        slope,
        prompt=[0, 1],
        output=[0, 7],
        repetition_penalty=2.0,
        presence_penalty=1.0,
        frequency_penalty=1.0,
        temperature=0.3,
        top_k=3,
        seed=43,
    )
    return cases


def random_cases(count):
    """Everything at once, over vocabularies up to 300; what rounding could decide is redrawn."""
    rng = random.Random(20240229)
    cases = []
    while len(cases) < count:
        vocab = rng.choice([2, 5, 17, 64, 300])
        logits = [rng.gauss(0.0, rng.choice([0.5, 2.0, 4.0])) for _ in range(vocab)]
        arguments = {
            "prompt": [rng.randrange(vocab) for _ in range(rng.randrange(8))],
            "output": [rng.randrange(vocab) for _ in range(rng.randrange(12))],
            "repetition_penalty": rng.choice([1.0, 1.0, 1.1, 1.5]),
            "presence_penalty": rng.choice([0.0, 0.0, 0.6, -0.4]),
            "frequency_penalty": rng.choice([0.0, 0.0, 0.3, -0.2]),
            "temperature": rng.choice([0.0, 0.5, 0.8, 0.8, 1.0, 1.5]),
            "top_k": rng.choice([0, 0, 3, 20, 50]),
            "top_p": rng.choice([1.0, 1.0, 0.5, 0.9, 0.95]),
            "min_p": rng.choice([0.0, 0.0, 0.05, 0.2]),
            "seed": rng.getrandbits(rng.choice([8, 32, 64])),
        }
        try:
            cases.append(make_case(f"random {len(cases)}", logits, **arguments))
        except TooClose:
            pass
    return cases


def philox_rows():
    """The known answers that come with Random123, which the function above must give."""
    known = [
        (
            "00000000 00000000 00000000 00000000",
            "00000000 00000000",
            "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        ),
        (
            "ffffffff ffffffff ffffffff ffffffff",
            "ffffffff ffffffff",
            "408f276d 41c83b0e a20bc7c6 6d5451fd",
        ),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ]
    rows = []
    for counter, key, expected in (
        [[int(word, 16) for word in words.split()] for words in row] for row in known
    ):
        assert philox4x32_10(counter, key) == expected
        rows.append({"counter": counter, "key": key, "output": expected})
    return rows


def uniform_rows():
    seeds = [0, 1, 42, 0xFFFFFFFF, 0x100000000, 0xFEDCBA9876543210, 0xFFFFFFFFFFFFFFFF]
    rows = [(seed, position) for seed in seeds for position in (0, 1, 2, 1000, 0xFFFFFFFF)]
    rows += [(s, 0) for s in (SEED_FOR_ZERO, SEED_FOR_QUARTER, SEED_FOR_HALF, SEED_FOR_LARGEST)]
    return [{"seed": s, "position": p, "uniform": uniform(s, p)} for s, p in rows]


def main():
    assert uniform(SEED_FOR_ZERO, 0) == 0.0
    assert uniform(SEED_FOR_QUARTER, 0) == 0.25
    assert uniform(SEED_FOR_HALF, 0) == 0.5
    assert uniform(SEED_FOR_LARGEST, 0) == 1 - 2.0**-24
    cases = named_cases() + random_cases(60)
    names = [case["name"] for case in cases]
    assert len(names) == len(set(names))
    table = {"philox": philox_rows(), "uniform": uniform_rows(), "cases": cases}
    sections = []
    for name, rows in table.items():
        lines = ",\n".join("    " + json.dumps(row) for row in rows)
        sections.append(f'  "{name}": [\n{lines}\n  ]')
    text = "{\n" + ",\n".join(sections) + "\n}\n"
    (HERE / "sampling.json").write_text(text, encoding="utf-8")
    print(", ".join(f"{len(rows)} rows of {name}" for name, rows in table.items()))


if __name__ == "__main__":
    main()
