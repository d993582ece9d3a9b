"""Exchanges of HTTP as JSON: what official clients sent, and what they were answered.

    tests/http/transcripts.py record FILE COMMAND...

runs COMMAND with the address of a proxy in the place of {} (http://HOST:PORT), passes its requests on to
`skein serve checkpoints/bard`, and writes FILE, as in

    tests/http/transcripts.py record tests/http/openai.json python tests/http/check_openai.py {}

transcripts_test.py sends the requests again, and expects the same answers.
"""

import contextlib
import http.client
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading

HEADERS = ("content-type", "anthropic-version", "accept")  # of requests; others are the clients' own matter
VOLATILE = {"id", "created", "created_at", "item_id", "sequence_number"}


@contextlib.contextmanager
def served(skein):
    """Serves bard; gives HOST:PORT of HTTP."""
    command = [skein, "serve", "checkpoints/bard", "--np=1", "--http=127.0.0.1:0", "--listen=127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        found = re.search(r"served at http://(\S+)", line)
        assert found, line
        yield found.group(1)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def ask(address, request):
    """The answer to one request, as it stands in a transcript."""
    connection = http.client.HTTPConnection(address, timeout=60)
    body = json.dumps(request["body"]) if "body" in request else None
    connection.request(request["method"], request["path"], body, request["headers"])
    answer = connection.getresponse()
    content_type = answer.getheader("Content-Type")
    text = answer.read().decode()
    connection.close()
    if content_type.startswith("text/event-stream"):
        body = merged([event_of(lines) for lines in text.split("\n\n") if lines and not lines.startswith(":")])
    else:
        body = plain(json.loads(text))
    return {"status": answer.status, "content_type": content_type, "body": body}


def event_of(lines):
    fields = dict(line.split(": ", 1) for line in lines.split("\n"))
    data = fields["data"]
    return {"event": fields.get("event"), "data": data if data == "[DONE]" else plain(json.loads(data))}


def plain(value):
    """Without what differs from run to run: ids, times, and the last digits of log probabilities."""
    if isinstance(value, dict):
        return {key: "*" if key in VOLATILE and field is not None else plain(field) for key, field in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def skeleton(value):
    """What two pieces of one stream have in common: all but their texts and lists of tokens."""
    if isinstance(value, dict):
        return {key: skeleton(field) for key, field in value.items() if key != "usage"}
    if isinstance(value, list):
        return [skeleton(item) for item in value[:1]] if value and isinstance(value[0], dict) and "index" in value[0] else "list"
    return "text" if isinstance(value, str) and value else value


def joined(a, b, key=None):
    if isinstance(a, dict):
        return {name: joined(a[name], b[name], name) for name in a}
    if isinstance(a, list) and a and isinstance(a[0], dict) and "index" in a[0]:
        return [joined(x, y) for x, y in zip(a, b)]
    if isinstance(a, list):
        return a + b
    return a + b if isinstance(a, str) and key in ("text", "content", "delta") else a


def merged(events):
    """How many tokens come in one event depends on how fast they are taken: pieces that follow one another are one."""
    out = []
    for event in events:
        piece = '"text": "text"', '"content": "text"', '"delta": "text"'
        shape = json.dumps(skeleton(event))
        if out and any(p in shape for p in piece) and shape == json.dumps(skeleton(out[-1])):
            out[-1] = joined(out[-1], event)
        else:
            out.append(event)
    return out


def record(file, command):
    exchanges = []
    with served("bazel-bin/client/skein") as address:

        class Proxy(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                request = {"method": self.command, "path": self.path,
                           "headers": {k.lower(): v for k, v in self.headers.items() if k.lower() in HEADERS}}
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if body:
                    request["body"] = json.loads(body)
                exchanges.append({"request": request, "answer": ask(address, request)})
                connection = http.client.HTTPConnection(address, timeout=60)
                connection.request(self.command, self.path, body or None, request["headers"])
                answer = connection.getresponse()
                text = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.getheader("Content-Type"))
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = pass_on

            def log_message(self, *arguments):
                pass

        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{proxy.server_port}"
        subprocess.run([argument.replace("{}", url) for argument in command], check=True)
    for exchange in exchanges:
        drop_cached(exchange["answer"])
    with open(file, "w", encoding="utf-8") as out:
        json.dump(exchanges, out, indent=1, ensure_ascii=False)
        out.write("\n")
    print(f"{len(exchanges)} exchanges in {file}")


def drop_cached(value):
    """How much the prefix cache had depends on what was asked before: the proxy asks twice."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        drop_cached(item)
    if isinstance(value, dict) and "cached_tokens" in value:
        assert isinstance(value["cached_tokens"], int)
        value["cached_tokens"] = "*"


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] != "record":
        sys.exit(__doc__)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    record(sys.argv[2], sys.argv[3:])
