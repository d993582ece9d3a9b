#!/usr/bin/env python3
"""Holds the status page in a real Chromium against what the cluster does.

    tests/page/check_page.py [PICTURES]

Starts coordinators and jobs of bazel-bin (build //coordinator //client:skein //worker //tests/fault:faulty_worker before), looks at the page,
kills a rank and a coordinator, and ends all of it. PICTURES: a folder for status-page-light.png, -dark.png and
-phone.png. Needs Debian's chromium and chromium-driver; not a part of CI. Prints what failed, and exits with 1 then.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request

import webdriver

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTILE = "<img src=x onerror='window.struck = 1'>"  # also the model's name


class Cluster:
    """A coordinator and its jobs, which end with it."""

    def __init__(self, folder, *flags, name=HOSTILE):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.model = self.folder / name
        shutil.copytree(ROOT / "checkpoints/bard", self.model)
        self.flags = flags
        self.processes = []
        self.listen = self.http = "127.0.0.1:0"
        self.start_coordinator()

    def start(self, name, command):
        log = open(self.folder / name, "ab")
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, start_new_session=True,
                                   cwd=ROOT)
        self.processes.append(process)
        return process

    def start_coordinator(self):
        ports = [self.folder / "port", self.folder / "http"]
        for port in ports:
            port.unlink(missing_ok=True)
        self.coordinator = self.start("coordinator.log", [
            ROOT / "bazel-bin/coordinator/coordinator", f"--model={self.model}", f"--listen={self.listen}",
            f"--http={self.http}", f"--port-file={ports[0]}", f"--http-port-file={ports[1]}", *self.flags])
        while not ports[1].exists():
            assert self.coordinator.poll() is None, (self.folder / "coordinator.log").read_text()
            time.sleep(0.05)
        self.listen, self.http = (port.read_text().strip() for port in ports)
        self.url = f"http://{self.http}/"

    def start_job(self, ranks, layout, worker="worker/worker", flags=()):
        environment = subprocess.run(["bash", "-c", ". scripts/env.sh; env"], cwd=ROOT, capture_output=True, text=True)
        os.environ.update(line.split("=", 1) for line in environment.stdout.splitlines() if line.startswith("OMPI_"))
        self.start(f"job{len(self.processes)}.log", ["mpirun", "-np", ranks, ROOT / "bazel-bin" / worker,
                                                    f"--coordinator={self.listen}", f"--layout={layout}", *flags])

    def status(self):
        with urllib.request.urlopen(self.url + "v1/status", timeout=10) as answer:
            return json.load(answer)

    def wait_for_jobs(self, count):
        until = time.time() + 60
        while sum(job["state"] == "serving" for job in self.status()["jobs"]) < count:
            assert time.time() < until, self.status()
            time.sleep(0.2)

    def close(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# ---- Checks of whatever is shown ----

CONTRASTS = """
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
      .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = channels(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.getClientRects().length || element.closest('svg, script, style') || element.disabled) continue;
    const [a, b] = [light(channels(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(element.textContent.slice(0, 40) + ' ' + ratio.toFixed(2));
  }
  return bad;"""

UNNAMED = """
  const bad = [];
  for (const field of document.querySelectorAll('input, select, textarea')) {
    if (!field.labels.length) bad.push(field.id);
  }
  for (const button of document.querySelectorAll('button')) if (!button.textContent.trim()) bad.push('button');
  for (const image of document.querySelectorAll('img')) if (!image.alt) bad.push(image.src);
  for (const drawn of document.querySelectorAll('svg')) if (!drawn.getAttribute('aria-label')) bad.push('svg');
  const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
  if (new Set(ids).size !== ids.length) bad.push('an id comes twice');
  return bad;"""


def check_looks(browser):
    """In light and dark, wide and on a phone: contrast, names of controls, no sideways scrolling."""
    for name, width, height, dark, phone in (("light", 1100, 900, False, False), ("dark", 1100, 900, True, False),
                                             ("phone", 360, 740, False, True), ("phone-dark", 360, 740, True, True)):
        browser.look(width, height, dark, phone)
        time.sleep(1.2)  # the next status
        paper = browser.run("return getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in paper[4:-1].split(",")) / 3
        assert (brightness < 60) if dark else (brightness > 200), (name, paper)
        assert browser.run(CONTRASTS) == [], (name, browser.run(CONTRASTS))
        assert browser.run(UNNAMED) == [], (name, browser.run(UNNAMED))
        across = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert across == [width, width], (name, across)
    browser.look(1100, 900)


def check_clean(browser):
    """Nothing was complained of, stopped by the policy, or run by a name."""
    console = browser.console()
    assert console == [], console
    assert browser.run("return window.violations") == []
    assert browser.run("return window.struck || 0") == 0
    inert = "return document.querySelectorAll('img:not(.scroll > img), iframe, object, embed, link[rel=stylesheet]').length"
    assert browser.run(inert) == 0


def text(browser, selector):
    return browser.run("return document.querySelector(arguments[0]).innerText", selector)


# ---- The story ----

def shows_the_cluster(browser, cluster):
    browser.open(cluster.url)
    browser.wait("return document.getElementById('state').innerText === 'serving'")
    assert text(browser, "#model") == HOSTILE, text(browser, "#model")
    assert browser.run("return document.title") == f"{HOSTILE} · Skein"
    browser.wait("return document.querySelectorAll('#jobs article').length === 2")
    browser.wait("return [...document.querySelectorAll('#jobs .scroll img')].filter((i) => i.naturalWidth > 100).length === 2")
    for job in cluster.status()["jobs"]:
        shown = [part for part in browser.run("return [...document.querySelectorAll('#jobs article')].map((a) => a.innerText)")
                 if job["job_id"] in part][0]
        for rank in job["ranks"]:
            assert f"{rank['host']} (pid {rank['pid']})" in shown, shown
        layout = job["plan"]["layout"]
        assert f"tp={layout['tp_size']}, pp={layout['pp_size']}, dp={layout['dp_size']} on" in shown, shown
    cells = browser.run("return [...document.querySelectorAll('.plan g text')].map((t) => t.textContent)")
    assert cells.count("rank 0 · ready") == 2 and cells.count("rank 1 · ready") == 2, cells


def answers_a_prompt(browser):
    browser.run("document.getElementById('form').value = 'text'; document.getElementById('most').value = 100")
    browser.type("#prompt", "ROMEO:\nWhat")
    browser.run("""window.grown = new Set();
        new MutationObserver(() => grown.add(document.getElementById('answer').textContent.length))
            .observe(document.getElementById('answer'), {childList: true});""")
    browser.click("#send")
    browser.wait("return document.getElementById('end').innerText.includes('; end: ')")
    assert browser.run("return grown.size") > 10, "the answer did not stream"
    assert len(text(browser, "#answer")) > 20
    end = re.fullmatch(r"(\d+) tokens in [\d.]+ m?s, the first after [\d.]+ (ms|µs); end: (length|stop)", text(browser, "#end"))
    assert end and int(end[1]) > 20, text(browser, "#end")
    assert browser.run("return document.getElementById('answer').children.length") == 0
    rate = "return Number(document.querySelector('#tiles dd').firstChild.data.replace(/,/g, ''))"
    assert browser.wait(rate) > 1  # of the last ten seconds
    browser.wait("return /First token\\n[\\d.]+ (ms|µs|s)\\n99% within/.test(document.getElementById('tiles').innerText)")
    # Another one, as a chat, which is stopped.
    browser.run("document.getElementById('form').value = 'chat'; document.getElementById('most').value = 900")
    browser.click("#send")
    browser.wait("return document.getElementById('answer').textContent.length > 20")
    browser.click("#stop")
    browser.wait("return document.getElementById('end').innerText === 'Stopped.'")


def words_from_strangers_do_nothing(browser):
    """Every text of the status, and an answer, is markup."""
    browser.run("""
        const spoil = (value) => typeof value === 'string' && !/^-?[\\d.]+$/.test(value) ? arguments[0] + value
            : Array.isArray(value) ? value.map(spoil)
            : value && typeof value === 'object' ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, spoil(v)]))
            : value;
        const hostile = arguments[0];
        window.honest = window.fetch;
        window.fetch = async (path, options) => {
          if (path.startsWith('/v1/status')) {
            const status = await (await honest(path, options)).json();
            status.jobs.push({job_id: 'over', state: 'lost', detail: 'of', over_seconds: 3, ranks: [], replicas: []});
            return new Response(JSON.stringify(spoil(status)));
          }
          if (path.includes('completions')) {
            const event = {choices: [{text: hostile, delta: {content: hostile}, finish_reason: 'stop'}]};
            return new Response('data: ' + JSON.stringify(event) + '\\n\\ndata: [DONE]\\n\\n');
          }
          return honest(path, options);
        };""", HOSTILE)
    browser.wait("return document.getElementById('faults').innerText.includes(arguments[0] + 'of')", HOSTILE)
    browser.wait("return document.getElementById('jobs').innerText.includes(arguments[0])", HOSTILE)
    browser.click("#send")
    browser.wait("return document.getElementById('answer').textContent === arguments[0]", HOSTILE)
    time.sleep(1.5)
    # An image of an address that cannot be would have failed by now.
    assert browser.run("return window.struck || 0") == 0
    assert browser.run("return document.querySelectorAll('img[src=x]').length") == 0
    assert browser.run("return window.violations") == []
    browser.run("window.fetch = window.honest")
    browser.console()  # pictures of jobs of those names


def a_dead_rank_is_told(browser, cluster):
    job = cluster.status()["jobs"][0]
    os.kill(job["ranks"][1]["pid"], signal.SIGKILL)
    browser.wait("return document.getElementById('faults').innerText.includes(arguments[0])", f"Job {job['job_id']}: lost")
    faults = text(browser, "#faults")
    assert f"rank 1 on {job['ranks'][1]['host']} (pid {job['ranks'][1]['pid']}) is lost" in faults, faults
    browser.wait("return document.querySelectorAll('#jobs article').length === 1")
    assert job["job_id"] not in text(browser, "#jobs")
    assert text(browser, "#state") == "serving"


def a_coordinator_that_is_gone_comes_back(browser, cluster):
    os.killpg(cluster.coordinator.pid, signal.SIGKILL)
    cluster.coordinator.wait()
    browser.wait("return document.getElementById('alert').innerText.includes('does not answer')")
    assert text(browser, "#state") == "not reached"
    cluster.start_coordinator()
    browser.wait("return document.getElementById('alert').hidden && document.getElementById('state').innerText === 'serving'",
                 seconds=40)


def a_key_is_asked_for(browser, folder):
    keys = pathlib.Path(folder) / "keys"
    added = subprocess.run([ROOT / "bazel-bin/client/skein", "keys", "add", keys, "alice"], check=True,
                           capture_output=True, text=True)
    key = next(word for word in (added.stdout + added.stderr).split() if word.startswith("sk-"))
    cluster = Cluster(folder, f"--api-keys={keys}")
    try:
        browser.open(cluster.url)
        browser.wait("return !document.getElementById('key-form').hidden")
        assert HOSTILE not in text(browser, "body")
        browser.type("#key", "sk-wrong\n")
        browser.wait("return document.getElementById('alert').innerText === 'The coordinator does not know this key.'")
        browser.type("#key", key + "\n")
        browser.wait("return document.getElementById('model').innerText === arguments[0]", HOSTILE)
        assert browser.run("return document.getElementById('key-form').hidden")
        assert browser.run("return [sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        browser.call("POST", "/refresh")
        browser.wait("return document.getElementById('model').innerText === arguments[0]", HOSTILE)
        browser.click("#forget")
        browser.wait("return !document.getElementById('key-form').hidden")
        assert browser.run("return sessionStorage.length") == 0
    finally:
        cluster.close()


def draw(browser, folder, pictures):
    """A cluster that works, and has lost a job, for the documents."""
    cluster = Cluster(folder, name="bard")
    try:
        cluster.start_job(4, "tp=2,pp=2")
        cluster.wait_for_jobs(1)
        cluster.start_job(1, "tp=1")
        cluster.wait_for_jobs(2)
        lost = min(cluster.status()["jobs"], key=lambda job: job["size"])
        os.kill(lost["ranks"][0]["pid"], signal.SIGKILL)
        until = time.time() + 20

        def load():
            body = json.dumps({"prompt": "KING HENRY:", "max_tokens": 300, "n": 3}).encode()
            while time.time() < until:
                request = urllib.request.Request(cluster.url + "v1/completions", body, {"Content-Type": "application/json"})
                urllib.request.urlopen(request, timeout=60).read()

        threads = [threading.Thread(target=load) for _ in range(5)]
        for thread in threads:
            thread.start()
        browser.open(cluster.url)
        time.sleep(12)
        browser.run("document.getElementById('form').value = 'text'; document.getElementById('most').value = 60")
        browser.type("#prompt", "ROMEO:\nWhat")
        browser.click("#send")
        browser.wait("return document.getElementById('end').innerText.includes('; end: ')")
        for name, width, height, dark in (("light", 1100, 1250, False), ("dark", 1100, 1250, True),
                                          ("phone", 360, 1100, False)):
            browser.look(width, 900, dark, phone=name == "phone")
            time.sleep(1.2)
            browser.picture(f"{pictures}/status-page-{name}.png", width, height)
        for thread in threads:
            thread.join()
    finally:
        browser.look(1100, 900)
        cluster.close()


def main():
    pictures = sys.argv[1] if len(sys.argv) > 1 else None
    for program in ("chromedriver", "chromium", "mpirun"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is missing: apt-get install chromium chromium-driver openmpi-bin")
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(folder)
        browser = None
        try:
            browser = webdriver.Browser()
            # Slow enough for answers to be seen as they come.
            for layout in ("tp=2", "pp=2"):
                cluster.start_job(2, layout, "tests/fault/faulty_worker", ["--slow=10ms"])
            cluster.wait_for_jobs(2)
            browser.look(1100, 900)
            story = [lambda: shows_the_cluster(browser, cluster), lambda: answers_a_prompt(browser),
                     lambda: check_clean(browser), lambda: words_from_strangers_do_nothing(browser),
                     lambda: a_dead_rank_is_told(browser, cluster), lambda: check_looks(browser),
                     lambda: check_clean(browser), lambda: a_coordinator_that_is_gone_comes_back(browser, cluster),
                     lambda: a_key_is_asked_for(browser, folder)]
            for part in story:
                part()
            if pictures:
                draw(browser, folder, pictures)
        except Exception:
            traceback.print_exc()
            if browser is None:
                sys.exit(1)
            browser.picture("/tmp/check_page.png", 1100, 1600)
            sys.exit("the page at that moment: /tmp/check_page.png")
        finally:
            if browser is not None:
                browser.close()
            cluster.close()
    print("the status page shows what the cluster does")


if __name__ == "__main__":
    main()
