#!/usr/bin/env python3
"""What HTTP costs, against `skein serve checkpoints/bard` on this machine; exits with 1 where a floor is missed.

    tests/http/perf.py

Built before: bazel build //client:skein //coordinator //supervisor //worker. Not a part of CI: figures need a quiet machine.
"""

import contextlib
import glob
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

failed = []


def figure(name, value, unit, floor):
    missed = value > floor
    print(f"{name}: {value:.1f} {unit} (at most {floor}){' MISSED' if missed else ''}", flush=True)
    if missed:
        failed.append(name)


@contextlib.contextmanager
def served(*flags):
    """Gives HOST:PORT and the coordinator's pid."""
    command = ["bazel-bin/client/skein", "serve", "checkpoints/bard", "--np=1", "--http=127.0.0.1:0",
               "--listen=127.0.0.1:0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = re.search(r"served at http://(\S+)", process.stdout.readline()).group(1)
        yield address, coordinator_of(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def coordinator_of(ancestor):
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            with open(path, encoding="utf-8") as file:
                name, rest = re.match(r"\d+ \((.*)\) (.*)", file.read()).groups()
            parent = int(rest.split()[1])
            if name != "coordinator":
                continue
            with open(f"/proc/{parent}/stat", encoding="utf-8") as file:
                if int(file.read().rsplit(") ", 1)[1].split()[1]) == ancestor:
                    return int(path.split("/")[2])
    raise RuntimeError("no coordinator")


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid):
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def send(address, body):
    text = json.dumps(body).encode()
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=120)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(text) + text)
    return connection


def stream_all(address, count):
    """So many streams at once; how many events came."""
    events = [0] * count
    body = {"prompt": "KING HENRY:", "max_tokens": 200, "temperature": 1, "ignore_eos": True, "stream": True}

    def read(i):
        with send(address, body) as connection:
            while data := connection.recv(65536):
                events[i] += data.count(b"data: ")

    threads = [threading.Thread(target=read, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(events)


def events_and_memory():
    with served("--max-num-seqs=64") as (address, pid):
        stream_all(address, 64)
        costs = []
        for _ in range(3):
            before = cpu_s(pid)
            events = stream_all(address, 64)
            costs.append((cpu_s(pid) - before) / events * 1e6)
        figure("CPU of an event at 64 streams", statistics.median(costs), "us", 25)
        before = rss_mib(pid)
        host, port = address.split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(1000)]
        time.sleep(1)
        figure("memory of 1,000 idle connections", rss_mib(pid) - before, "MiB", 32)
        stream_all(address, 256)
        figure("memory after 256 streams at once beside them", rss_mib(pid) - before, "MiB", 64)
        for connection in idle:
            connection.close()


def refusals():
    """Of a full server, while its worker computes."""
    with served("--max-num-seqs=1", "--max-queue=0") as (address, _):
        body = {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "stream": True}
        times = []
        while len(times) < 300:
            # A replica is given one answer more than it runs.
            with send(address, body) as running, send(address, body):
                running.recv(1024)
                time.sleep(0.05)
                connection = http.client.HTTPConnection(address)
                for _ in range(100):
                    begin = time.monotonic()
                    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    if answer.status != 429:
                        connection.close()
                        break
                    assert answer.getheader("Retry-After")
                    answer.read()
                    times.append((time.monotonic() - begin) * 1e3)
                connection.close()
            time.sleep(0.2)
        figure("429 of a full server, median", statistics.median(times), "ms", 10)
        figure("429 of a full server, p99", sorted(times)[len(times) * 99 // 100], "ms", 100)


def cancels():
    """From a client's end to the end of its answer in the worker, as the metrics tell it."""
    with served() as (address, _):
        connection = http.client.HTTPConnection(address)

        def running():
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            return sum(float(value) for value in re.findall(r"^skein_num_requests_running\S* (\S+)", text, re.M))

        times = []
        for _ in range(20):
            stream = send(address, {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "stream": True})
            stream.recv(1024)
            assert running() == 1
            begin = time.monotonic()
            stream.close()
            while running() > 0:
                pass
            times.append((time.monotonic() - begin) * 1e3)
        figure("end of an answer whose client has gone, median", statistics.median(times), "ms", 20)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(__doc__)
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    events_and_memory()
    refusals()
    cancels()
    sys.exit(bool(failed))
