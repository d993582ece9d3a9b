#!/usr/bin/env python3
"""Holds Skein's GGUF files against llama.cpp's programs, and theirs against Skein.

    check_llama_cpp.py BIN    (the folder of llama-simple, llama-quantize, llama-imatrix; gguf and numpy of PyPI)

Build //client:skein, //worker and //coordinator first. llama.cpp opens every file that Skein writes of bard, and continues prompts
with the same greedy text: exactly from F32, F16 and BF16, half of it at least from quantised files, of which both round inputs to 8 bits,
each in its own way. Skein opens every file that llama.cpp writes; its own diverge no more, and have the same types of tensors. Importance
matrices go both ways.
"""
import argparse
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BARD = "checkpoints/bard"
TEXT = "scripts/train/tinyshakespeare.txt"
PROMPTS = ["First Citizen:", "ROMEO:\nBut, soft!", "KING HENRY VI:\nI am", "To be", "What"]
TOKENS = 24
failures = []


def expect(ok, what):
    print(("ok    " if ok else "WRONG ") + what, flush=True)
    if not ok:
        failures.append(what)


def run(*command):
    done = subprocess.run([str(c) for c in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


def skein(*arguments):
    return run("bazel-bin/client/skein", *arguments)


def theirs_of(bin_folder, model, prompt):
    """What llama.cpp continues the prompt with."""
    out = run(bin_folder / "llama-simple", "-m", model, "-n", TOKENS, prompt)
    return out[out.index(prompt) + len(prompt):].rstrip("\n")


def ours_of(model, prompts):
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        port = any_port.getsockname()[1]
    address = f"127.0.0.1:{port}"
    processes = [subprocess.Popen(["bazel-bin/coordinator/coordinator", f"--model={model}", f"--listen={address}"],
                                  cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
    try:
        processes.append(subprocess.Popen(["bazel-bin/worker/worker", f"--coordinator={address}", "--device=cpu",
                                           "--no-probe"], cwd=ROOT, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL))
        skein("status", "--wait=30s", f"--coordinator={address}")
        return [skein("generate", "--prompt", prompt, "--temperature=0", f"--max-tokens={TOKENS}", f"--coordinator={address}")
                .rstrip("\n") for prompt in prompts]
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def types(path):
    return {t.name: (t.tensor_type.name, tuple(map(int, t.shape))) for t in gguf.GGUFReader(path).tensors}


def divergence(model, against):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        skein("perplexity", model, TEXT, "--context=128", "--tokens=3000", f"--against={against}",
              f"--json={out.name}")
        return json.load(open(out.name))["against"]["kl_mean"]


def common(a, b):
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return same


def check_greedy(bin_folder, name, model, least):
    """`least`: the share of the text that has to be the same."""
    ours = ours_of(model, PROMPTS)
    shares = []
    for prompt, mine in zip(PROMPTS, ours):
        other = theirs_of(bin_folder, model, prompt)
        mine = mine.removeprefix(prompt)
        shares.append(1 if mine == other else common(mine, other) / max(len(mine), len(other)))
    expect(sum(shares) / len(shares) >= least,
           f"{name}: greedy texts agree over {sum(shares) / len(shares):.0%} of {len(PROMPTS)} texts of {TOKENS} tokens")


def check_importances(bin_folder, folder, bf16):
    text = f"{folder}/text.txt"
    pathlib.Path(text).write_text((ROOT / TEXT).read_text()[:60000])
    mine, other = f"{folder}/ours.gguf", f"{folder}/theirs.gguf"
    skein("imatrix", bf16, text, mine, "--context=512")
    run(bin_folder / "llama-imatrix", "-m", bf16, "-f", text, "-o", other, "-c", 512, "--process-output")
    read = [{t.name: np.array(t.data, np.float64) for t in gguf.GGUFReader(f).tensors} for f in (mine, other)]
    names = [n for n in read[1] if n.endswith(".in_sum2") and n in read[0]]
    worst = 0.0
    for name in names:
        counts = name.replace(".in_sum2", ".counts")
        means = [r[name].ravel() / r[counts].ravel()[0] for r in read]
        # They leave the text's last tokens out, which fill no window.
        worst = max(worst, np.abs(means[0] - means[1]).sum() / means[1].sum())
    expect(len(names) >= 56 and worst < 0.05,
           f"importances of {len(names)} tensors are those of llama.cpp's program, the farthest off by {worst:.2%}")
    for source, program in ((other, "skein"), (mine, "llama-quantize")):
        out = f"{folder}/with-{program}.gguf"
        if program == "skein":
            skein("quantize", bf16, out, "--type=Q2_K", f"--imatrix={source}")
        else:
            run(bin_folder / program, "--imatrix", source, bf16, out, "Q2_K")
        expect(divergence(out, bf16) < 0.05, f"{program} quantises by the other's importance matrix")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    bin_folder = parser.parse_args().bin.resolve()
    begin = time.time()
    with tempfile.TemporaryDirectory() as folder:
        bf16 = f"{folder}/bf16.gguf"
        skein("convert", BARD, bf16)
        check_greedy(bin_folder, "BF16", bf16, 1)
        for plain in ("f32", "f16"):
            skein("convert", BARD, f"{folder}/{plain}.gguf", f"--type={plain}")
            check_greedy(bin_folder, plain.upper(), f"{folder}/{plain}.gguf", 1)
        listed = re.search(r"files of the name have: ([A-Z0-9_, ]+)", skein("quantize", "--help")).group(1)
        for recipe in listed.strip().split(", "):
            mine, other = f"{folder}/ours-{recipe}.gguf", f"{folder}/theirs-{recipe}.gguf"
            skein("quantize", bf16, mine, f"--type={recipe}")
            run(bin_folder / "llama-quantize", bf16, other, recipe)
            expect(types(mine) == types(other), f"{recipe}: the same types of the same tensors")
            far, their_far = divergence(mine, bf16), divergence(other, bf16)
            expect(far <= their_far, f"{recipe}: divergence {far:.5f}, of llama.cpp's file {their_far:.5f}")
            check_greedy(bin_folder, recipe, mine, 0.5)
            check_greedy(bin_folder, f"{recipe} of llama.cpp", other, 0.5)
        check_importances(bin_folder, folder, bf16)
    print(f"{len(failures)} wrong, in {time.time() - begin:.0f} s")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
