#!/usr/bin/env python3
"""Measures what quantised weights, and keys and values, cost bard: docs/quantisation.md's table and picture.

    bazel build //client:skein //worker && scripts/quantisation.py [--out docs/quantisation.svg] [--json FIGURES]

Prints the tables as Markdown. The text is the 5% of tinyshakespeare.txt that bard was not trained on. Takes some minutes.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "checkpoints/bard"
TEXT = ROOT / "scripts/train/tinyshakespeare.txt"
TRAINED = 0.95
CONTEXT = 512
KV_TYPES = {"f32": 32, "bf16": 16, "f16": 16, "int8": 8.5}  # bits a value, the scale of 64 with them

STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.soft { fill: #59636e }
.paper { fill: #ffffff }
.grid { stroke: #d5dbe1; stroke-width: 1 }
.weight { fill: #3568b0 }
.exact { fill: none; stroke: #3568b0; stroke-width: 1.5 }
.kv { fill: #b04f00 }
.tick { text-anchor: middle }
.left { text-anchor: end }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.soft { fill: #9198a1 }
.paper { fill: #0d1117 }
.grid { stroke: #30363d }
.weight { fill: #6ea8fe }
.exact { stroke: #6ea8fe }
.kv { fill: #f0883e }
}
</style>
"""


def skein(*arguments):
    done = subprocess.run([str(ROOT / "bazel-bin/client/skein"), *map(str, arguments)], capture_output=True, text=True,
                          cwd=ROOT)
    if done.returncode:
        sys.exit(f"skein {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def recipes():
    """Those that the command's help lists."""
    text = skein("quantize", "--help")
    return re.search(r"files of the name have: ([A-Z0-9_, ]+)", text).group(1).replace("\n", " ").split(", ")


def perplexity(folder, model, text, *flags):
    out = f"{folder}/figures.json"
    skein("perplexity", model, text, f"--context={CONTEXT}", f"--against={MODEL}", f"--json={out}", *flags)
    return json.loads(pathlib.Path(out).read_text())


def measure(folder):
    corpus = TEXT.read_text()
    text, training = f"{folder}/text.txt", f"{folder}/training.txt"
    pathlib.Path(text).write_text(corpus[int(len(corpus) * TRAINED):])
    pathlib.Path(training).write_text(corpus[:200000])
    importance = f"{folder}/importance.gguf"
    skein("imatrix", MODEL, training, importance)
    bf16 = f"{folder}/bf16.gguf"
    skein("convert", MODEL, bf16)
    weights = []
    for recipe in ["BF16", *recipes()]:
        file = bf16
        weighed = None
        if recipe != "BF16":
            file, other = f"{folder}/{recipe}.gguf", f"{folder}/{recipe}-imatrix.gguf"
            said = skein("quantize", MODEL, file, f"--type={recipe}")
            skein("quantize", MODEL, other, f"--type={recipe}", f"--imatrix={importance}")
            weighed = perplexity(folder, other, text)["against"]["kl_mean"]
            bits = float(re.search(r"([0-9.]+) bits a weight", said).group(1))
        else:
            bits = 16
        row = perplexity(folder, file, text)
        exact = perplexity(folder, file, text, "--exact")["against"]["kl_mean"]
        weights.append({"name": recipe, "bits": bits, "size": pathlib.Path(file).stat().st_size,
                        "perplexity": row["perplexity"], "kl": row["against"]["kl_mean"], "exact": exact,
                        "weighed": weighed, "p99": row["against"]["kl_p99"], "same_top": row["against"]["same_top"]})
        print(f"{recipe}: {weights[-1]['kl']:.6f}", file=sys.stderr)
    kv = []
    for name, bits in KV_TYPES.items():
        row = perplexity(folder, MODEL, text, f"--kv-dtype={name}")
        kv.append({"name": name, "bits": bits, "perplexity": row["perplexity"], "kl": row["against"]["kl_mean"],
                   "p99": row["against"]["kl_p99"], "same_top": row["against"]["same_top"]})
    return weights, kv


def table(weights, kv):
    print("| type | bits a weight | file | perplexity | divergence | with `--exact` | with `--imatrix` | 99% | same token |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for r in weights:
        weighed = "" if r["weighed"] is None else f"{r['weighed']:.5f}"
        print(f"| {r['name']} | {r['bits']:.2f} | {r['size'] / 2**20:.1f} MiB | {r['perplexity']:.3f} | {r['kl']:.5f} "
              f"| {r['exact']:.5f} | {weighed} | {r['p99']:.4f} | {r['same_top']:.1%} |")
    print("\n| keys and values | bits | perplexity | divergence | 99% | same token |")
    print("| --- | --- | --- | --- | --- | --- |")
    for r in kv:
        print(f"| {r['name']} | {r['bits']} | {r['perplexity']:.3f} | {r['kl']:.1e} | {r['p99']:.1e} | {r['same_top']:.1%} |")


class Labels:
    """Places names near dots, where they cover neither another name nor a dot, if there is such a place.

    Returns where the name begins, and where a line to the dot ends."""

    def __init__(self, dots):
        self.taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in dots]

    def place(self, name, x, y):
        size = 7 * len(name)
        places = [(x + 8, y + 4), (x - 8 - size, y + 4)]
        places += [(x + dx, y + dy) for dy in (-9, 17, -22, 30) for dx in (4, -4 - size, -size / 2)]
        boxes = [(left, base - 10, left + size, base + 2) for left, base in places]

        def overlaps(box):
            return sum(box[0] < t[2] and t[0] < box[2] and box[1] < t[3] and t[1] < box[3] for t in self.taken)

        best = min(range(len(boxes)), key=lambda i: (overlaps(boxes[i]), i))
        self.taken.append(boxes[best])
        left, base = places[best]
        return places[best], (min(max(x, left), left + size), base - 4 if base > y + 4 else base + 2)


def draw(weights, kv):
    """Divergences on a logarithmic scale: of weights over their bits, beside them of keys and values."""
    left, top, width, height = 70, 70, 540, 520
    kv_left, kv_width = left + width + 20, 120
    least_bits, most_bits, low, high = 3, 9, -6, -1

    def x(bits):
        return left + (bits - least_bits) / (most_bits - least_bits) * width

    def y(kl):
        return top + (high - max(math.log10(kl), low)) / (high - low) * height

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="780" height="660" viewBox="0 0 780 660">', STYLE,
           '<rect class="paper" width="780" height="660"/>',
           '<text class="title" x="20" y="28">What bits cost: bard, on text that it was not trained on</text>',
           '<text class="soft" x="20" y="46">Kullback-Leibler divergence from the model in BF16, nats a token</text>']
    for power in range(low, high + 1):
        at = y(10.0 ** power)
        out.append(f'<line class="grid" x1="{left}" x2="{left + width}" y1="{at:.1f}" y2="{at:.1f}"/>')
        out.append(f'<line class="grid" x1="{kv_left}" x2="{kv_left + kv_width}" y1="{at:.1f}" y2="{at:.1f}"/>')
        out.append(f'<text class="left soft" x="{left - 8}" y="{at + 4:.1f}">{10.0 ** power:g}</text>')
    for bits in range(least_bits, most_bits + 1):
        out.append(f'<text class="tick soft" x="{x(bits):.1f}" y="{top + height + 18}">{bits}</text>')
    out.append(f'<text class="tick soft" x="{left + width / 2}" y="{top + height + 36}">bits a weight</text>')
    shown = sorted((r for r in weights if r["kl"] > 0), key=lambda r: (r["bits"], r["kl"]))
    labels = Labels([(x(r["bits"]), y(r[kind])) for r in shown for kind in ("kl", "exact")])
    for r in shown:
        at = x(r["bits"])
        out.append(f'<circle class="exact" cx="{at:.1f}" cy="{y(r["exact"]):.1f}" r="4"/>')
        out.append(f'<circle class="weight" cx="{at:.1f}" cy="{y(r["kl"]):.1f}" r="4"/>')
        (text_x, text_y), (end_x, end_y) = labels.place(r["name"], at, y(r["kl"]))
        if abs(text_y - 4 - y(r["kl"])) > 1:
            out.append(f'<line class="grid" x1="{at:.1f}" y1="{y(r["kl"]):.1f}" x2="{end_x:.1f}" y2="{end_y:.1f}"/>')
        out.append(f'<text x="{text_x:.1f}" y="{text_y:.1f}">{r["name"]}</text>')
    rounded = [r for r in kv if r["kl"] > 0]
    for i, r in enumerate(rounded):
        at = kv_left + kv_width * (i + 0.5) / len(rounded)
        out.append(f'<circle class="kv" cx="{at:.1f}" cy="{y(r["kl"]):.1f}" r="4"/>')
        beyond = f": {r['kl']:.0e}" if math.log10(r["kl"]) < low else ""
        out.append(f'<text class="tick" x="{at:.1f}" y="{y(r["kl"]) - 9:.1f}">{r["name"]}{beyond}</text>')
    out.append(f'<text class="tick soft" x="{kv_left + kv_width / 2}" y="{top + height + 36}">keys and values</text>')
    legend = top + height + 56
    for at, kind, words in ((left, "weight", "as served"), (left + 110, "exact", "with --exact")):
        out.append(f'<circle class="{kind}" cx="{at}" cy="{legend}" r="4"/>'
                   f'<text x="{at + 10}" y="{legend + 4}">{words}</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/quantisation.svg", help="the picture")
    parser.add_argument("--json", type=pathlib.Path, help="the figures, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights, kv = measure(folder)
    if args.json:
        args.json.write_text(json.dumps({"weights": weights, "kv": kv}))
    table(weights, kv)
    args.out.write_text(draw(weights, kv))


if __name__ == "__main__":
    main()
