#!/usr/bin/env python3
"""Writes sampling.json: what the sampler must choose, computed by an implementation of its own.

    tests/golden/make_sampling_table.py      # a second, Python's standard library only

That implementation is sampling_oracle.py. The cases are here and in sampling_extra_cases.py.
"""

import json
import math
import pathlib
import random

from sampling_extra_cases import extra_cases, prompt_rows, random_extra_cases
from sampling_oracle import (
    SEED_FOR_HALF,
    SEED_FOR_LARGEST,
    SEED_FOR_QUARTER,
    SEED_FOR_ZERO,
    TooClose,
    make_case,
    philox4x32_10,
    seed_for,
    uniform,
)

HERE = pathlib.Path(__file__).resolve().parent


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
    table = [{"seed": s, "position": p, "uniform": uniform(s, p)} for s, p in rows]
    for seed, position, sample in (
        (0, 0, 1),
        (0, 1, 1),
        (1, 0, 2),
        (42, 1000, 7),
        (42, 1 << 32, 0),
        (42, (1 << 32) + 1, 1),
        (0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
    ):
        u = uniform(seed, position, sample)
        table.append({"seed": seed, "position": position, "sample": sample, "uniform": u})
    return table


def main():
    assert uniform(SEED_FOR_ZERO, 0) == 0.0
    assert uniform(SEED_FOR_QUARTER, 0) == 0.25
    assert uniform(SEED_FOR_HALF, 0) == 0.5
    assert uniform(SEED_FOR_LARGEST, 0) == 1 - 2.0**-24
    cases = named_cases() + random_cases(60) + extra_cases() + random_extra_cases(60)
    names = [case["name"] for case in cases]
    assert len(names) == len(set(names))
    table = {
        "philox": philox_rows(),
        "uniform": uniform_rows(),
        "cases": cases,
        "prompt_logprobs": prompt_rows(),
    }
    sections = []
    for name, rows in table.items():
        lines = ",\n".join("    " + json.dumps(row) for row in rows)
        sections.append(f'  "{name}": [\n{lines}\n  ]')
    text = "{\n" + ",\n".join(sections) + "\n}\n"
    (HERE / "sampling.json").write_text(text, encoding="utf-8")
    print(", ".join(f"{len(rows)} rows of {name}" for name, rows in table.items()))


if __name__ == "__main__":
    main()
