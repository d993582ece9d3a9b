#!/usr/bin/python3
"""Tests count_tests.py on reports as Bazel 4.2 and GoogleTest 1.12 write them."""

import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import count_tests  # noqa: E402

PASS = '<testcase name="Passes" status="run" result="completed" classname="Suite"/>'
FAIL = ('<testcase name="Fails" status="run" result="completed" classname="Suite">'
        '<failure message="a.cc:3&#x0A;1 is not 2" type=""/></testcase>')
DISABLED = '<testcase name="DISABLED_Off" status="notrun" result="suppressed" classname="Suite"/>'
# What Bazel itself writes for a program that writes no XML.
SHELL_PASS = '<testcase name="scripts/a_test" status="run" duration="1" time="1"></testcase>'
SHELL_FAIL = ('<testcase name="scripts/a_test" status="run" duration="1" time="1">'
              '<error message="exited with error code 1"></error></testcase>')


def said(log):
    return f'<system-out>Generated test.log:<![CDATA[{log}]]></system-out>'


def skip(reason):
    return ('<testcase name="Skips" status="run" result="skipped" classname="Suite">'
            f'<skipped message="a_test.cc:9&#x0A;{reason}"/></testcase>')


class CountTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.events = []

    def target(self, label, *shards, configured=True):
        """shards: (status, the cases' XML, or None where there is no test.xml)."""
        if configured:
            self.events.append({"id": {"targetConfigured": {"label": label}},
                                "configured": {"targetKind": "cc_test rule", "testSize": "SMALL"}})
        for i, (status, cases) in enumerate(shards):
            outputs = [{"name": "test.log", "uri": "file:///nowhere/test.log"}]
            if cases is not None:
                path = self.root / f"{label.strip('/').replace(':', '_').replace('/', '_')} {i}.xml"
                path.write_text(f'<?xml version="1.0"?><testsuites><testsuite>{cases}</testsuite></testsuites>')
                outputs.append({"name": "test.xml", "uri": path.as_uri()})
            self.events.append({"id": {"testResult": {"label": label, "run": 1, "shard": i + 1, "attempt": 1}},
                                "testResult": {"status": status, "testActionOutput": outputs}})

    def run_main(self, *flags, checks=None):
        events = self.root / "events.json"
        events.write_text("".join(json.dumps(e) + "\n" for e in self.events))
        if checks is not None:
            (self.root / "checks").write_text(checks)
            flags += ("--checks", str(self.root / "checks"))
        out = io.StringIO()
        status = count_tests.main(["--events", str(events), *flags], out)
        lines = out.getvalue().splitlines()
        return status, lines[-1], lines[:-1]

    def test_outcomes(self):
        gpu, shared, odd = skip("this test needs a GPU"), skip("../shared is absent"), skip("no time")
        table = [
            # cases, Bazel's status, flags, (exit status, last line)
            (PASS, "PASSED", [], (0, "1 passed, 0 failed, 0 skipped")),
            (PASS + PASS, "PASSED", [], (0, "2 passed, 0 failed, 0 skipped")),
            (PASS + FAIL, "FAILED", [], (1, "1 passed, 1 failed, 0 skipped")),
            (PASS, "FAILED", [], (1, "1 passed, 1 failed, 0 skipped")),
            (PASS, "TIMEOUT", [], (1, "1 passed, 1 failed, 0 skipped")),
            (PASS, "FLAKY", [], (1, "1 passed, 1 failed, 0 skipped")),
            (PASS, "PASSED", ["--bazel-status=1"], (1, "1 passed, 1 failed, 0 skipped")),
            (FAIL, "FAILED", ["--bazel-status=3"], (1, "0 passed, 1 failed, 0 skipped")),
            (PASS + gpu, "PASSED", [], (0, "1 passed, 0 failed, 1 skipped")),
            (PASS + gpu, "PASSED", ["--shared"], (0, "1 passed, 0 failed, 1 skipped")),
            (PASS + shared, "PASSED", [], (0, "1 passed, 0 failed, 1 skipped")),
            (PASS + shared, "PASSED", ["--shared"], (1, "1 passed, 1 failed, 0 skipped")),
            (PASS + odd, "PASSED", [], (1, "1 passed, 1 failed, 0 skipped")),
            (PASS + DISABLED, "PASSED", [], (1, "1 passed, 1 failed, 0 skipped")),
            (SHELL_PASS, "PASSED", [], (0, "1 passed, 0 failed, 0 skipped")),
            (SHELL_FAIL, "FAILED", [], (1, "0 passed, 1 failed, 0 skipped")),
            ("", "PASSED", [], (1, "0 passed, 1 failed, 0 skipped")),
            (None, "PASSED", [], (1, "0 passed, 1 failed, 0 skipped")),
            ("<testcase", "PASSED", [], (1, "0 passed, 1 failed, 0 skipped")),
        ]
        for cases, bazel, flags, want in table:
            with self.subTest(cases=cases, bazel=bazel, flags=flags):
                self.events = []
                self.target("//a:a_test", (bazel, cases))
                self.assertEqual(self.run_main(*flags)[:2], want)

    def test_every_shard_counts(self):
        self.target("//a:a_test", ("PASSED", PASS), ("FAILED", FAIL), ("PASSED", ""))
        self.assertEqual(self.run_main()[:2], (1, "1 passed, 1 failed, 0 skipped"))

    def test_target_without_result_fails(self):
        self.target("//a:a_test", ("PASSED", PASS))
        self.target("//b:b_test")
        status, last, lines = self.run_main()
        self.assertEqual((status, last), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertEqual(lines, ["FAILED //b:b_test: it has no result: was it built?"])

    def test_target_of_another_configuration_is_skipped(self):
        self.target("//a:a_test", ("PASSED", PASS))
        self.target("//kernels/cuda:cuda_test")
        self.events.append({"id": {"targetCompleted": {"label": "//kernels/cuda:cuda_test"}},
                            "aborted": {"reason": "SKIPPED"}})
        self.assertEqual(self.run_main()[:2], (0, "1 passed, 0 failed, 1 skipped"))

    def test_binaries_are_no_tests(self):
        self.target("//a:a_test", ("PASSED", PASS))
        self.events.append({"id": {"targetConfigured": {"label": "//a:a"}}, "configured": {"targetKind": "cc_binary rule"}})
        self.assertEqual(self.run_main()[:2], (0, "1 passed, 0 failed, 0 skipped"))

    def test_no_test_at_all_fails(self):
        self.assertEqual(self.run_main()[:2], (1, "0 passed, 1 failed, 0 skipped"))

    def test_checks_count(self):
        self.target("//a:a_test", ("PASSED", PASS))
        status, last, lines = self.run_main(checks="passed formatting\nfailed layers\n")
        self.assertEqual((status, last), (1, "2 passed, 1 failed, 0 skipped"))
        self.assertEqual(lines, ["FAILED layers"])

    def test_failures_and_skips_are_named_with_reasons(self):
        self.target("//a:a_test", ("FAILED", FAIL + skip("needs a GPU")))
        self.assertEqual(self.run_main()[2], ["FAILED //a:a_test Suite.Fails: a.cc:3 1 is not 2",
                                              "SKIPPED //a:a_test Suite.Skips: a_test.cc:9 needs a GPU"])

    def test_a_program_without_xml_fails_with_what_it_said(self):
        for log, want in [
                ("one\nFAILED: no answer\nlogs\n", "FAILED: no answer"),
                ("one\nthe last\n\n", "the last"),
        ]:
            with self.subTest(log=log):
                self.events = []
                self.target("//a:a_test", ("FAILED", SHELL_FAIL + said(log)))
                self.assertEqual(self.run_main()[2], [f"FAILED //a:a_test .scripts/a_test: exited with error code 1: {want}"])


if __name__ == "__main__":
    unittest.main()
