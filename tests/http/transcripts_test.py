#!/usr/bin/env python3
"""What official clients sent once is answered as it was then, but for ids and times: see transcripts.py."""

import difflib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import transcripts  # noqa: E402


def main():
    failed = count = 0
    with transcripts.served("client/skein") as address:
        for name in ("openai", "anthropic"):
            with open(f"tests/http/{name}.json", encoding="utf-8") as file:
                exchanges = json.load(file)
            for exchange in exchanges:
                answer = transcripts.ask(address, exchange["request"])
                transcripts.drop_cached(answer)
                count += 1
                if answer == exchange["answer"]:
                    continue
                failed += 1
                print(f"FAILED: {name}: {json.dumps(exchange['request'])}")
                for line in difflib.unified_diff(*(json.dumps(a, indent=1, ensure_ascii=False).splitlines()
                                                   for a in (exchange["answer"], answer)), lineterm="", n=1):
                    print("   ", line)
    assert count >= 30, count
    print(f"{count} exchanges, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
