"""Cases of sampling.json with samples, bias, min_tokens, typical_p, mirostat, DRY or prompts."""

import math
import random

from sampling_oracle import (
    SEED_FOR_LARGEST,
    TooClose,
    float32,
    log_softmax,
    make_case,
    seed_for,
    top,
)


def extra_cases():
    """What SamplingParams has beyond the cases above, one idea each."""
    inf = math.inf
    slope = [2.0, 1.0, 0.0, -1.0, -2.0, 0.5, -0.5, 1.5]
    flat = [0.25] * 4
    late = seed_for(0, 0.9, 0.95)
    cases = []

    def add(name, logits, **arguments):
        cases.append(make_case(name, logits, **arguments))

    for sample in (0, 1, 2, 7, 0xFFFFFFFF):
        add(f"sample {sample} of one seed", slope, seed=11, sample=sample)
    add("a sample's later token", slope, seed=11, sample=1, output=[3, 3, 3])
    add("greedy samples are alike", slope, seed=11, sample=5, temperature=0.0)

    add("bias moves the largest", slope, temperature=0.0, logit_bias=[[4, 4.5]])
    add("bias under 0 bans", slope, temperature=0.0, logit_bias=[[0, -100.0], [7, -100.0]])
    add("equal biased ids add up", slope, temperature=0.0, logit_bias=[[2, 1.5], [2, 1.0]])
    add("bias of minus infinity does nothing", [-inf, 1.0, 0.0], seed=3, logit_bias=[[0, 50.0]])
    add("logprobs are without bias", slope, seed=51, logit_bias=[[3, 3.0], [0, -1.0]])
    add(
        "bias before repetition: a negative logit becomes positive",
        [2.0, -1.0, 1.0],
        prompt=[1],
        logit_bias=[[1, 2.0]],
        repetition_penalty=2.0,
        seed=52,
    )
    add("bias before temperature", slope, temperature=0.5, logit_bias=[[5, 1.25]], seed=53)
    add("bias before top_k", slope, top_k=2, logit_bias=[[4, 5.0]], seed=late)

    add("stop ids wait", slope, temperature=0.0, min_tokens=1, stop_ids=[0, 7])
    add("stop ids may come", slope, temperature=0.0, min_tokens=2, stop_ids=[0, 7], output=[1, 1])
    add("the last token that must be", slope, seed=54, min_tokens=3, stop_ids=[0], output=[5, 5])
    add("the first that may stop", slope, seed=54, min_tokens=2, stop_ids=[0], output=[5, 5])
    greedy_stop = {"temperature": 0.0, "min_tokens": 1, "stop_ids": [0]}
    add("min_tokens counts no prompt", slope, prompt=[1], **greedy_stop)
    add("min_tokens over bias", slope, min_tokens=9, stop_ids=[0], logit_bias=[[0, 90.0]], seed=55)
    add("min_tokens without stop ids", slope, min_tokens=9, seed=56)
    add("top_k counts no stop id", slope, min_tokens=1, stop_ids=[0], top_k=2, seed=late)

    for p in (0.05, 0.3, 0.6, 0.9, 0.99):
        add(f"typical_p {p}", slope, typical_p=p, seed=late)
    add("typical_p drops the most likely", [3.0] + [1.0] * 20, typical_p=0.4, seed=57)
    add("typical_p of equal logits", flat, typical_p=0.6, seed=seed_for(0, 0.7, 0.9), exact=True)
    add("typical_p never takes minus infinity", [-inf, 1.0, 0.0, -inf], typical_p=0.9, seed=late)
    add("typical_p after temperature", slope, temperature=2.0, typical_p=0.5, seed=58)
    add("typical_p is of what top_k left", slope, top_k=4, typical_p=0.5, seed=59)
    add("top_p is of what typical_p left", slope, typical_p=0.8, top_p=0.6, seed=60)
    add(
        "min_p is of the most likely that typical_p left",
        [3.0] + [1.0] * 15 + [0.5] * 5,
        typical_p=0.7,
        min_p=0.7,
        seed=late,
    )
    add("greedy ignores typical_p", [3.0] + [1.0] * 20, typical_p=0.4, temperature=0.0)

    for mu in (None, 10.0, 4.0, 2.0, 1.0, 0.3, -1.0):
        add(f"mirostat from {mu}", slope, mirostat_tau=1.5, mirostat_eta=0.1, mu=mu, seed=late)
    add("mirostat learns fast", slope, mirostat_tau=3.0, mirostat_eta=1.0, mu=2.5, seed=late)
    add("mirostat of eta 0 stays", slope, mirostat_tau=3.0, mirostat_eta=0.0, mu=2.5, seed=late)
    add("greedy leaves mirostat as it is", slope, mirostat_tau=3.0, mu=2.5, temperature=0.0)
    add("mirostat and one token", [-inf, 1.0], mirostat_tau=3.0, mu=2.5)
    add("a huge mu keeps all", slope, mirostat_tau=3.0, mu=5000.0, seed=SEED_FOR_LARGEST)
    add("mirostat, tie for the most likely", flat, mirostat_tau=3.0, mu=1.0, seed=late)
    add(
        "mirostat in the place of the others",
        slope,
        mirostat_tau=2.5,
        top_k=1,
        top_p=0.1,
        min_p=0.9,
        typical_p=0.1,
        seed=late,
    )
    add("mirostat after temperature", slope, mirostat_tau=1.2, temperature=0.6, seed=late)
    add(
        "mirostat after bias, penalties, dry and min_tokens",
        slope,
        mirostat_tau=1.2,
        mu=4.0,
        prompt=[1, 2, 3],
        output=[0, 1, 2],
        logit_bias=[[6, 1.0]],
        presence_penalty=0.5,
        dry_multiplier=0.8,
        min_tokens=4,
        stop_ids=[7],
        seed=61,
    )

    dry = {"dry_multiplier": 0.8, "seed": 62}
    add("dry, a repeat of the allowed length", slope, prompt=[1, 2, 0, 1, 2], **dry)
    add("dry, a repeat too short", slope, prompt=[1, 2, 0, 3, 2], **dry)
    add("dry, a longer repeat costs more", slope, prompt=[3, 1, 2, 0, 3, 1, 2], **dry)
    add("dry takes the longest repeat", slope, prompt=[4, 1, 2, 0, 1, 2, 0, 4, 1, 2], **dry)
    add("dry, two followers", slope, prompt=[1, 2, 0, 1, 2, 7, 1, 2], **dry)
    add("dry of a run of one token", slope, prompt=[0] * 9, **dry)
    add("dry goes on from prompt to output", slope, prompt=[1, 2, 0, 1], output=[2], **dry)
    add("dry of an empty history", slope, **dry)
    add("dry, length 1 allowed", slope, prompt=[0, 1, 0], dry_allowed_length=1, **dry)
    add("dry, base 1", slope, prompt=[5, 1, 2, 0, 5, 1, 2], dry_base=1.0, **dry)
    add("dry, a window too short", slope, prompt=[1, 2, 0, 1, 2], dry_last_n=4, **dry)
    add("dry, a window just long enough", slope, prompt=[1, 2, 0, 1, 2], dry_last_n=5, **dry)
    add("dry, a window of 0", slope, prompt=[1, 2, 0, 1, 2], dry_last_n=0, **dry)
    repeat = [3, 1, 2, 0, 3, 1, 2]
    ones = ([[3]], [[1]], [[2]], [[0]])
    for breakers in (*ones, [[3, 1]], [[1, 2]], [[0, 3]], [[2, 2], [5, 3], [3]]):
        add(f"dry with breakers {breakers}", slope, prompt=repeat, dry_breakers=breakers, **dry)
    twice = [1, 2, 2, 0, 1, 2, 2]
    add("dry, overlapping breakers", slope, prompt=twice, dry_breakers=[[2, 2, 0], [0, 1]], **dry)
    add("the penalty of dry stays finite", [5.0, -inf], prompt=[0] * 300, dry_base=4.0, **dry)
    bias = [[0, 2.0]]
    add("dry after the rest", slope, output=repeat, frequency_penalty=0.3, logit_bias=bias, **dry)
    add("dry before top_k", slope, prompt=repeat, top_k=2, dry_base=4.0, **dry)
    return cases


def random_extra_cases(count):
    """Everything of both at once; histories over few tokens, so that they repeat themselves."""
    rng = random.Random(20200729)
    cases = []
    while len(cases) < count:
        vocab = rng.choice([5, 17, 64, 300])
        logits = [rng.gauss(0.0, rng.choice([0.5, 2.0, 4.0])) for _ in range(vocab)]
        ids = [rng.randrange(vocab) for _ in range(rng.choice([2, 3, 5]))]
        arguments = {
            "prompt": rng.choices(ids, k=rng.randrange(12)),
            "output": rng.choices(ids, k=rng.randrange(12)),
            "repetition_penalty": rng.choice([1.0, 1.0, 1.3]),
            "frequency_penalty": rng.choice([0.0, 0.0, 0.2]),
            "temperature": rng.choice([0.5, 0.8, 1.0, 1.5]),
            "top_k": rng.choice([0, 0, 20]),
            "top_p": rng.choice([1.0, 1.0, 0.9]),
            "min_p": rng.choice([0.0, 0.0, 0.05]),
            "seed": rng.getrandbits(64),
            "sample": rng.randrange(4),
            "typical_p": rng.choice([1.0, 0.3, 0.7, 0.95]),
        }
        if rng.random() < 0.5:
            arguments["logit_bias"] = [[i, rng.uniform(-3, 3)] for i in rng.sample(range(vocab), 3)]
        if rng.random() < 0.5:
            arguments["min_tokens"] = rng.randrange(12)
            arguments["stop_ids"] = rng.sample(range(vocab), 2)
        if rng.random() < 0.4:
            arguments["mirostat_tau"] = rng.choice([0.5, 2.0, 5.0])
            arguments["mirostat_eta"] = rng.choice([0.1, 0.3])
            arguments["mu"] = rng.choice([None, rng.uniform(0.0, 12.0)])
        if rng.random() < 0.6:
            arguments["dry_multiplier"] = rng.choice([0.4, 0.8])
            arguments["dry_base"] = rng.choice([1.2, 1.75])
            arguments["dry_allowed_length"] = rng.choice([1, 2, 3])
            arguments["dry_last_n"] = rng.choice([-1, -1, 8])
            lengths = rng.choice([[], [1], [2, 3]])
            arguments["dry_breakers"] = [rng.choices(ids, k=length) for length in lengths]
        try:
            cases.append(make_case(f"random extra {len(cases)}", logits, **arguments))
        except TooClose:
            pass
    return cases


def prompt_rows():
    """Prompt logprobs: what a row says of the next token and of the most likely ones."""
    rng = random.Random(42)
    rows = [
        ([1.0, 3.0, 2.0, 3.0], 2, 3),
        ([-math.inf, 0.0, 1.0], 1, 3),
        ([7.0], 0, 5),
        ([0.0, 900.0], 0, 0),
    ]
    for vocab, count in ((8, 0), (8, 1), (50, 5), (300, 20), (300, 1)):
        rows.append(([rng.gauss(0.0, 3.0) for _ in range(vocab)], rng.randrange(vocab), count))
    table = []
    for logits, i, count in rows:
        logits = [float32(x) for x in logits]
        logprobs = log_softmax(logits)
        table.append(
            {
                "logits": [None if x == -math.inf else x for x in logits],
                "id": i,
                "count": count,
                "logprob": float(f"{logprobs[i]:.9g}"),
                "top_logprobs": top(logprobs, count),
            }
        )
    return table
