"""Writes rope_table.inc: inverse frequencies as transformers defines them, in 50 digits.

    python3 model/config/rope_table.py > model/config/rope_table.inc

Follows the formulas of transformers' modeling_rope_utils.py (wave lengths, three cases), which the
C++ code states otherwise (turns), with the standard library's decimal numbers.
"""

from decimal import Decimal, getcontext

getcontext().prec = 50
PI = Decimal("3.14159265358979323846264338327950288419716939937511")

# theta, head_dim, and for llama3 scaling: factor, low, high, original context.
CASES = [
    ("10000", 64, None),
    ("500000", 128, None),
    ("500000", 128, ("8", "1", "4", "8192")),
    ("500000", 64, ("32", "1", "4", "8192")),
    ("1000000", 6, ("4", "1", "8", "100")),
]


def frequencies(theta, head_dim, scaling):
    for i in range(0, head_dim, 2):
        frequency = 1 / Decimal(theta) ** (Decimal(i) / head_dim)
        if scaling:
            factor, low, high, context = map(Decimal, scaling)
            wave_length = 2 * PI / frequency
            if wave_length > context / low:
                frequency /= factor
            elif wave_length >= context / high:
                smooth = (context / wave_length - low) / (high - low)
                frequency = (1 - smooth) * frequency / factor + smooth * frequency
        yield frequency


print("// Written by rope_table.py.")
for theta, head_dim, scaling in CASES:
    fields = ", ".join(scaling) if scaling else "0, 0, 0, 0"
    print("{%s, %d, %s," % (theta, head_dim, fields))
    rows = ["%.12e" % value for value in frequencies(theta, head_dim, scaling)]
    for start in range(0, len(rows), 4):
        last = start + 4 >= len(rows)
        print((" {" if start == 0 else "  ") + ", ".join(rows[start : start + 4]) + ("}}," if last else ","))
