#!/usr/bin/python3
"""Counts the cases of one `bazel test` run and of the checks beside it.

  count_tests.py --events FILE [--checks FILE] [--bazel-status N] [--shared]

--events: what --build_event_json_file wrote; it names this run's targets and where each one's test.xml lies.
--checks: lines "passed NAME", "failed NAME" of checks that are no Bazel tests.
--bazel-status: Bazel's exit status; not 0 is a failure even where nothing else failed.
--shared: the folder ../shared exists, so that no test may skip for want of it.

Prints each failure and each skip, then `N passed, N failed, N skipped`; exits 1 if anything failed. Fails, too: a target
without a result or without a case, and a skip for another reason than a missing GPU or a missing ../shared.
"""

import argparse
import json
import re
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Tally:
    """(name, outcome, reason) of every case."""

    def __init__(self, shared_exists):
        self.shared_exists = shared_exists
        self.cases = []

    def add(self, name, outcome, reason=""):
        if outcome == SKIPPED:
            outcome, reason = self._judge_skip(reason)
        self.cases.append((name, outcome, " ".join(reason.split())))

    def _judge_skip(self, reason):
        if re.search(r"\.\./shared|\bSKEIN_SHARED\b", reason):
            if self.shared_exists:
                return FAILED, "skipped for want of ../shared, which exists: " + reason
            return SKIPPED, reason
        if re.search(r"\b(GPUs?|CUDA)\b", reason):
            return SKIPPED, reason
        return FAILED, "skipped for no allowed reason: " + (reason or "none given")

    def count(self, outcome):
        return sum(1 for case in self.cases if case[1] == outcome)

    def report(self, out):
        for name, outcome, reason in self.cases:
            if outcome != PASSED:
                out.write(f"{outcome.upper()} {name}{': ' if reason else ''}{reason[:500]}\n")
        out.write(f"{self.count(PASSED)} passed, {self.count(FAILED)} failed, {self.count(SKIPPED)} skipped\n")


def text_of(element):
    return (element.get("message") or element.text or "").strip()


def last_words(log):
    """What a program that writes no XML says of its failure: its first line that begins with FAILED, or its last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith("FAILED")]
    return (failed or lines[-1:] or [""])[0]


def add_case(tally, target, case, log):
    name = f"{target} {case.get('classname', '')}.{case.get('name', '')}"
    broken = case.findall("failure") + case.findall("error")
    skipped = case.find("skipped")
    if broken:
        reason = text_of(broken[0])
        # Bazel's own report of a program that writes none.
        if reason.startswith("exited with error code"):
            reason += ": " + last_words(log)
        tally.add(name, FAILED, reason)
    elif skipped is not None or case.get("result") == "skipped":
        tally.add(name, SKIPPED, "" if skipped is None else text_of(skipped))
    elif case.get("status") == "notrun" or case.get("result") == "suppressed":
        tally.add(name, SKIPPED, "disabled")
    else:
        tally.add(name, PASSED)


def add_target(tally, target, results):
    """results: a target's (status, path of test.xml or None), one for each shard and attempt."""
    before = len(tally.cases)
    for status, path in results:
        failed_before = tally.count(FAILED)
        try:
            report = ElementTree.parse(path) if path else ElementTree.Element("testsuites")
            log = "".join(out.text or "" for out in report.iter("system-out"))
            for case in report.iter("testcase"):
                add_case(tally, target, case, log)
        except (OSError, ElementTree.ParseError) as error:
            tally.add(target, FAILED, f"{path} cannot be read: {error}")
        if status != "PASSED" and tally.count(FAILED) == failed_before:
            tally.add(target, FAILED, f"Bazel says {status}, though no case failed")
    if len(tally.cases) == before:
        tally.add(target, FAILED, "it ran no case" if results else "it has no result: was it built?")


def local_path(uri):
    return urllib.request.url2pathname(urllib.parse.urlparse(uri).path)


def read_events(lines):
    """{test target: [(status, path of test.xml or None)]}, and the targets that this configuration leaves out."""
    results, left_out = {}, set()
    for line in lines:
        event = json.loads(line)
        key = event.get("id", {})
        if "targetConfigured" in key and event.get("configured", {}).get("testSize", "UNKNOWN") != "UNKNOWN":
            results.setdefault(key["targetConfigured"]["label"], [])
        elif "targetCompleted" in key and event.get("aborted", {}).get("reason") == "SKIPPED":
            left_out.add(key["targetCompleted"]["label"])
        elif "testResult" in key and "testResult" in event:
            result = event["testResult"]
            outputs = {o["name"]: o.get("uri", "") for o in result.get("testActionOutput", [])}
            path = local_path(outputs["test.xml"]) if "test.xml" in outputs else None
            results.setdefault(key["testResult"]["label"], []).append((result.get("status", "NO_STATUS"), path))
    return results, left_out


def main(argv, out):
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", required=True)
    parser.add_argument("--checks")
    parser.add_argument("--bazel-status", type=int, default=0)
    parser.add_argument("--shared", action="store_true")
    args = parser.parse_args(argv)

    tally = Tally(args.shared)
    if args.checks:
        with open(args.checks, encoding="utf-8") as lines:
            for line in lines:
                outcome, name = line.rstrip("\n").split(" ", 1)
                tally.add(name, PASSED if outcome == PASSED else FAILED)
    try:
        with open(args.events, encoding="utf-8") as lines:
            results, left_out = read_events(lines)
    except OSError as error:
        results, left_out = {}, set()
        tally.add("bazel test", FAILED, f"no report of the run: {error}")
    for target in sorted(results):
        if target in left_out and not results[target]:
            tally.add(target, SKIPPED, "not for this configuration, which builds nothing for a GPU")
        else:
            add_target(tally, target, results[target])
    if not results:
        tally.add("bazel test", FAILED, "it ran no test")
    if args.bazel_status != 0 and tally.count(FAILED) == 0:
        tally.add("bazel test", FAILED, f"exit status {args.bazel_status}")
    tally.report(out)
    return 1 if tally.count(FAILED) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout))
