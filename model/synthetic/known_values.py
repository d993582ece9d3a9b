"""Writes known_values.inc: weights of synthetic:tiny, by the definition in synthetic.h.

    python3 model/synthetic/known_values.py > model/synthetic/known_values.inc
"""

from fractions import Fraction
import struct

MASK = (1 << 64) - 1


def fnv1a(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def splitmix64(seed):
    """The generator, one output after another."""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def weights(name, count, norm):
    values = []
    for word in splitmix64(fnv1a(name)):
        for byte in word.to_bytes(8, "little"):
            values.append(Fraction(128 + byte % 16, 128) if norm else Fraction(2 * byte - 255, 8192))
        if len(values) >= count:
            return values[:count]


def bf16(value):
    (bits,) = struct.unpack("<I", struct.pack("<f", float(value)))
    assert bits & 0xFFFF == 0, value
    return bits >> 16


print("// Written by known_values.py: name, elements, sum of the stored bits, the first 9.")
for name, count, norm in [
    ("model.embed_tokens.weight", 512 * 128, False),
    ("model.layers.0.self_attn.k_proj.weight", 64 * 128, False),
    ("model.layers.7.mlp.down_proj.weight", 128 * 256, False),
    ("model.layers.3.input_layernorm.weight", 128, True),
]:
    bits = [bf16(value) for value in weights(name, count, norm)]
    first = ", ".join("0x%04x" % value for value in bits[:9])
    print('{"%s", %d, %d,\n {%s}},' % (name, count, sum(bits), first))
