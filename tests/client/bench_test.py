#!/usr/bin/env python3
"""Runs the benches of `skein bench` for real, made small, and holds their JSON against the model's own files."""

import json
import os
import subprocess
import tempfile
import unittest

SKEIN = "client/skein"
BARD = "checkpoints/bard"
PROMPT = 8
KEYS = {"command", "subject", "version", "commit", "time", "machine", "rows"}


def bench(*arguments, prefix=(), model=True):
    """What the bench writes with --json, and what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bench.json")
        of_model = [f"--model={BARD}", "--threads=1"] if model else []
        ran = subprocess.run(
            [*prefix, SKEIN, "bench", *arguments, "--device=cpu", f"--json={path}", *of_model],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
        assert ran.returncode == 0, ran.stderr
        with open(path, encoding="utf-8") as file:
            return json.load(file), ran.stdout


def shapes():
    """The shapes of bard's matrices, by name, as its safetensors file lists them."""
    with open(os.path.join(BARD, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: tensor["shape"] for name, tensor in header.items()
            if name != "__metadata__" and len(tensor["shape"]) == 2}


def work_of_bard():
    """Weights that a step reads, and what a position's keys and values take in floats."""
    with open(os.path.join(BARD, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    matrices = dict(shapes())
    embedding = matrices.pop("model.embed_tokens.weight")
    head = matrices.pop("lm_head.weight", embedding)
    layers = sum(rows * cols for rows, cols in matrices.values())
    kv = config["num_hidden_layers"] * 2 * config["num_key_value_heads"] * config["head_dim"] * 4
    pair = config["num_hidden_layers"] * 4 * config["num_attention_heads"] * config["head_dim"]
    return layers, head[0] * head[1], kv, pair


class BenchTest(unittest.TestCase):

    def check(self, report, command, rows):
        self.assertLessEqual(KEYS, report.keys())
        self.assertEqual(report["command"], command)
        self.assertEqual(report["machine"]["kind"], "cpu")
        self.assertTrue(report["machine"]["device"])
        self.assertEqual([row["name"] for row in report["rows"]], rows)
        for row in report["rows"]:
            self.assertGreater(row["seconds"], 0)
            self.assertGreater(row["samples"], 0)
            reads, computes = (row["ceilings"][of] for of in ("bytes_per_s", "operations_per_s"))
            by_bytes = row["bytes"] / reads / row["seconds"]
            by_operations = row["operations"] / computes / row["seconds"] if computes else 0
            self.assertEqual(row["bound"], "bytes" if by_bytes >= by_operations else "operations")
            self.assertAlmostEqual(row["fraction"], max(by_bytes, by_operations))
            self.assertLess(row["fraction"], 3)  # of what one loop gives: neighbours, and caches

    def test_decode(self):
        report, table = bench("decode", "--batch=1,3", f"--prompt-tokens={PROMPT}", "--decode-tokens=6")
        self.check(report, "decode", ["decode, batch 1, cached", "decode, batch 3, cached"])
        layers, head, kv, pair = work_of_bard()
        context = sum(range(PROMPT + 1, PROMPT + 7)) / 6
        for row, batch in zip(report["rows"], (1, 3)):
            self.assertEqual(row["bytes"], 2 * (layers + head) + batch * context * kv)
            self.assertEqual(row["operations"], batch * (2 * (layers + head) + context * pair))
            self.assertAlmostEqual(row["tokens_per_s"], batch / row["seconds"])
        self.assertIn("decode, batch 3, cached", table)
        self.assertEqual(report["load_bytes"], os.path.getsize(os.path.join(BARD, "model.safetensors"))
                         - self.header_bytes())

    def header_bytes(self):
        with open(os.path.join(BARD, "model.safetensors"), "rb") as file:
            return 8 + int.from_bytes(file.read(8), "little")

    def test_prefill(self):
        report, _ = bench("prefill", "--prompt-tokens=4,16")
        self.check(report, "prefill", ["prefill of 4", "prefill of 16"])
        layers, head, kv, pair = work_of_bard()
        for row, tokens in zip(report["rows"], (4, 16)):
            causal = sum(range(1, tokens + 1))
            self.assertEqual(row["bytes"], 2 * (layers + head) + tokens * kv)
            self.assertEqual(row["operations"], 2 * (layers * tokens + head) + causal * pair)

    def test_kernels(self):
        report, _ = bench("kernels", "--only=of 4: 1B o", "--threads=1", model=False)
        self.check(report, "kernels", ["product of 4: 1B o 2048 x 2048"])
        self.assertEqual(report["rows"][0]["bytes"], 2 * 2048 * 2048)
        self.assertEqual(report["rows"][0]["operations"], 4 * 2 * 2048 * 2048)

    def test_comm(self):
        report, table = bench("comm", prefix=("tests/mpi/mpirun.sh", "3"), model=False)
        sizes = [8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20]
        self.assertEqual([row["message_bytes"] for row in report["rows"]],
                         [size for size in sizes for _ in range(2)])
        self.check(report, "comm", [row["name"] for row in report["rows"]])
        for row in report["rows"]:
            self.assertEqual(row["ranks"], 3)
            share = 4 / 3 if row["name"].startswith("all-reduce of ") else 1
            self.assertAlmostEqual(row["bytes"], share * row["message_bytes"])
        self.assertEqual(table.count("all-reduce of 8.0 KiB"), 1)  # of one rank


if __name__ == "__main__":
    unittest.main()
