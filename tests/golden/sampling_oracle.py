"""The sampler's contract (README.md), computed in float64 by one plain loop after the other.

Written without a glance at the C++. Logits and parameters are float32 numbers, as the sampler gets
them. A case whose outcome a float32 sampler could miss by rounding alone is refused (TooClose),
unless its numbers are exact.
"""

import math
import struct

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

# The table names those that a case sets.
EXTRAS = {
    "sample": 0,
    "logit_bias": [],
    "min_tokens": 0,
    "stop_ids": [],
    "typical_p": 1.0,
    "mirostat_tau": 0.0,
    "mirostat_eta": 0.1,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_last_n": -1,
    "dry_breakers": [],
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


def uniform(seed, position, sample=0):
    counter = (position & 0xFFFFFFFF, position >> 32, sample, 0)
    first = philox4x32_10(counter, (seed & 0xFFFFFFFF, seed >> 32))[0]
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


def ends_with(tokens, tail):
    return len(tail) <= len(tokens) and tokens[len(tokens) - len(tail) :] == tail


def dry_penalties(params, history):
    """{id: what DRY takes from its logit}, by comparing the history with itself at every place."""
    tokens = history if params["dry_last_n"] < 0 else history[::-1][: params["dry_last_n"]][::-1]
    breakers = params["dry_breakers"]
    reach = 0
    while reach < len(tokens):
        until = tokens[: len(tokens) - reach]
        if any(ends_with(until, breaker) for breaker in breakers):
            break
        reach += 1
    longest = {}
    for i, follower in enumerate(tokens):
        length = 0
        while length < min(i, reach) and tokens[i - 1 - length] == tokens[-1 - length]:
            length += 1
        longest[follower] = max(length, longest.get(follower, 0))
    multiplier, base = params["dry_multiplier"], params["dry_base"]
    return {
        i: min(multiplier * base ** (length - params["dry_allowed_length"]), 1e30)
        for i, length in longest.items()
        if length >= params["dry_allowed_length"] and [i] not in breakers
    }


def adjusted(logits, params, prompt, output):
    scores = list(logits)
    for i, bias in params["logit_bias"]:
        scores[i] += bias
    scores = penalised(scores, params, prompt, output)
    if params["dry_multiplier"] > 0:
        for i, penalty in dry_penalties(params, prompt + output).items():
            scores[i] -= penalty
    if len(output) < params["min_tokens"]:
        for i in params["stop_ids"]:
            scores[i] = -math.inf
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


def typical(kept, typical_p, exact):
    """Meister et al., Locally typical sampling (2022)."""
    kept = [(i, p) for i, p in kept if p > 0]
    entropy = -math.fsum(p * math.log(p) for _, p in kept)
    distance = {i: abs(-math.log(p) - entropy) for i, p in kept}
    probability = dict(kept)
    order = sorted(probability, key=lambda i: (distance[i], i))
    for a, b in zip(order, order[1:]):
        if probability[a] != probability[b]:
            apart(distance[a], distance[b], exact)
    chosen = set()
    cumulative = 0.0
    for i in order:
        chosen.add(i)
        cumulative += probability[i]
        apart(cumulative, typical_p, exact)
        if cumulative >= typical_p:
            break
    return normalised([(i, p) for i, p in kept if i in chosen])


def unsurprising(kept, mu, exact):
    """The truncation of mirostat v2 (Basu et al., 2020)."""
    surprises = [-math.log2(p) if p > 0 else math.inf for _, p in kept]
    for surprise in surprises:
        apart(surprise, mu, exact)
    least = [pair for pair, surprise in zip(kept, surprises) if surprise <= mu]
    return normalised(least or kept[:1])


def survivors(scores, params, mu, exact):
    """(id, probability) in descending order of probability, ties by ascending id."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    order = [i for i in order if scores[i] != -math.inf]
    for a, b in zip(order, order[1:]):
        if scores[a] != scores[b]:
            apart(scores[a], scores[b], exact)
    if params["temperature"] == 0:
        return [(order[0], 1.0)]
    mirostat = params["mirostat_tau"] > 0
    if params["top_k"] > 0 and not mirostat:
        order = order[: params["top_k"]]
    top = scores[order[0]]
    kept = normalised([(i, math.exp((scores[i] - top) / params["temperature"])) for i in order])
    if mirostat:
        return unsurprising(kept, mu, exact)
    if params["typical_p"] < 1:
        kept = typical(kept, params["typical_p"], exact)
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


def next_mu(params, mu, kept, chosen):
    if params["temperature"] == 0:
        return mu
    surprise = -math.log2(dict(kept)[chosen])
    return float32(mu - params["mirostat_eta"] * (surprise - params["mirostat_tau"]))


def as_float32(value):
    if isinstance(value, float):
        return float32(value)
    return [as_float32(v) for v in value] if isinstance(value, (list, tuple)) else value


def top(logprobs, count):
    ranked = sorted(range(len(logprobs)), key=lambda i: (-logprobs[i], i))
    return [[i, float(f"{logprobs[i]:.9g}")] for i in ranked[:count] if logprobs[i] > -1e9]


def make_case(name, logits, prompt=(), output=(), mu=None, exact=False, **changes):
    logits = [float32(x) for x in logits]
    listed = {key: as_float32(value) for key, value in (DEFAULTS | changes).items()}
    params = EXTRAS | listed
    prompt, output = list(prompt), list(output)
    position = len(output)
    u = uniform(params["seed"], position, params["sample"])
    current_mu = 2 * params["mirostat_tau"] if mu is None else float32(mu)
    kept = survivors(adjusted(logits, params, prompt, output), params, current_mu, exact)
    chosen = draw(kept, u, exact)
    logprobs = log_softmax(logits)
    survived = [(i, p) for i, p in kept if p >= NEGLIGIBLE]
    case = {
        "name": name,
        "logits": [None if x == -math.inf else x for x in logits],
        "params": listed,
        "prompt": prompt,
        "output": output,
        "position": position,
        "uniform": u,
        "survivors": [i for i, _ in survived],
        "probabilities": [float(f"{p:.9g}") for _, p in survived],
        "chosen": chosen,
        "logprob": float(f"{logprobs[chosen]:.9g}"),
        "top_logprobs": top(logprobs, 3),
    }
    if params["mirostat_tau"] > 0:
        case |= {"mu": None if mu is None else current_mu}
        case |= {"next_mu": next_mu(params, current_mu, kept, chosen)}
    return case


def seed_for(position, low, high):
    """The first seed whose draw at `position` lies in [low, high)."""
    return next(s for s in range(1 << 20) if low <= uniform(s, position) < high)


# Seeds with a chosen draw at position 0, found by trying seeds from 0 upwards.
SEED_FOR_ZERO = 12121362
SEED_FOR_QUARTER = 23739184
SEED_FOR_HALF = 515707
SEED_FOR_LARGEST = 16390493  # 1 - 2^-24
