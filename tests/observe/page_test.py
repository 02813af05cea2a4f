"""The page of a job, looked at as people do: in a real browser while a worker is killed, without scripts, from other users'
processes, and by those who mean no good.

  page_test.py BUILD [unittest options…]
  page_test.py BUILD --pictures DIR      makes the pictures of docs/observe.md instead
"""

import concurrent.futures
import contextlib
import hmac
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import browser
import cases
from clock import Stopwatch
from jobs import exit_code, free_port, lines_of, status, wait_for

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
DTRUN = BUILD / "bin/dtrun"
SEEN_WITHIN_S = 2
SAID_FROM_S = 2  # the page names the part of a job's life that it does not show from this length on
NOBODY = 65534
CONFIG = ROOT / "configs/fashion_mnist_convnet.json"
SLEEP = ("--", "sleep", "1000")


class Job:
    """One of this host, in a folder of its own, until end()."""

    def __init__(self, *words):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtrun-page-test-"))
        self.id = f"page-{os.getpid()}"
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder)}
        (self.folder / "told").touch()
        self.processes = []
        self.start(*words)
        self.address = urllib.parse.urlsplit(wait_for(lambda: self.status().get("page"))["address"])

    def start(self, *words):
        self.process = self.run(DTRUN, "--standalone", "--rdzv_id", self.id, *words)

    def run(self, *words):
        with open(self.folder / "told", "a", encoding="utf-8") as told:
            self.processes.append(subprocess.Popen(words, stdout=told, stderr=told, env=self.environment, start_new_session=True))
        return self.processes[-1]

    def status(self):
        return status(DTRUN, self.id, *self.where(), env=self.environment)

    def where(self):
        return ()

    def link(self):
        asked = [DTRUN, "status", self.id, "--open"]
        return subprocess.run(asked, capture_output=True, text=True, env=self.environment, check=True).stdout.strip()

    def told(self):
        return (self.folder / "told").read_text()

    def threads(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        return {(task / "comm").read_text().strip() for task in tasks.iterdir()}

    def ask(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        body = answer.read().decode() if "event-stream" not in answer.headers["Content-Type"] else ""
        connection.close()
        return answer.status, body, answer.headers

    def connect(self, words=b""):
        connection = socket.create_connection((self.address.hostname, self.address.port))
        connection.sendall(words)
        return connection

    def end(self):
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            exit_code(process)
        shutil.rmtree(self.folder)


# A process whose workers share no memory with those outside of it, as if it were another host.
APART = ("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--pid", "--fork", "--mount-proc", "--kill-child")


class TwoNodes(Job):
    """A training with a store, and workers on two nodes, which send each other messages."""

    def __init__(self, epochs=1000, workers=2):
        self.epochs, self.workers = epochs, workers
        super().__init__()

    def train(self, *options, before=()):
        return self.run(*before, DTRUN, "--lanes", "1", "--max_restarts", "3", "--rdzv_id", self.id, *options,
                        CONFIG, f"output_dir={self.folder / 'run'}", "train.logging_steps=40",
                        "train.save_steps=100", "train.eval_steps=400", f"train.num_train_epochs={self.epochs}")

    def lines(self, event):
        return lines_of(self.folder / "run/metrics.jsonl", event)

    def start(self):
        self.port, self.page_port = free_port(), free_port()
        self.store = self.start_store()
        join = ("--nnodes", "2", "--nproc_per_node", str(self.workers // 2), *self.where())
        self.train(*join, "--node_rank", "0", before=APART if self.apart() else ())
        self.process = self.train(*join, "--node_rank", "1")

    def start_store(self):
        return self.run(DTRUN, "store", "--port", str(self.port), "--bind", "127.0.0.1", "--http_port", str(self.page_port))

    @staticmethod
    def apart():
        return subprocess.run([*APART, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0

    def where(self):
        return "--rdzv_endpoint", f"127.0.0.1:{self.port}"


def rest_of(connection):
    with contextlib.suppress(ConnectionResetError):
        words = b""
        while piece := connection.recv(65536):
            words += piece
        return words
    return b""


class HttpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.job = Job(*SLEEP)
        cls.addClassCleanup(cls.job.end)

    def test_a_training_says_where_it_is_and_has_no_thread_for_it_before_somebody_looks(self):
        job = Job("--lanes", "1", CONFIG, f"output_dir={self.enterContext(tempfile.TemporaryDirectory())}", "train.num_train_epochs=1000")
        self.addCleanup(job.end)
        self.assertEqual(job.told().count(f"watch: http://127.0.0.1:{job.address.port}; elsewhere: ssh -L "), 1)
        self.assertNotIn("dtrun-page", job.threads())
        self.assertEqual(job.ask("/healthz")[:2], (200, "ok\n"))
        self.assertIn("dtrun-page", job.threads())

    def test_shows_only(self):
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            status, _, headers = self.job.ask("/", method)
            self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))
        status, body, headers = self.job.ask("/", "HEAD")
        self.assertEqual((status, body), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 1000)
        self.assertIn("default-src 'self'", headers["Content-Security-Policy"])
        self.assertNotIn("Access-Control-Allow-Origin", headers)

    def test_a_foreign_sites_name_is_refused(self):
        self.assertEqual(self.job.ask("/", Host="evil.example")[0], 421)
        self.assertEqual(self.job.ask("/", Host=f"localhost:{self.job.address.port}")[0], 200)

    def test_who_is_another_user_needs_the_token(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        link = urllib.parse.urlsplit(self.job.link())
        with_token = link.path + "?" + link.query

        def as_nobody(path):
            asked = subprocess.run(["setpriv", f"--reuid={NOBODY}", "--clear-groups", sys.executable, "-c",
                                    "import http.client, sys\n"
                                    "c = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))\n"
                                    "c.request('GET', sys.argv[2]); print(c.getresponse().status)",
                                    str(self.job.address.port), path], capture_output=True, text=True, check=True)
            return int(asked.stdout)

        self.assertEqual(as_nobody("/"), 403)
        self.assertEqual(as_nobody("/api/v1/runs"), 403)
        self.assertEqual(as_nobody("/?token=" + "0" * 32), 403)
        self.assertEqual(as_nobody(with_token), 200)
        self.assertNotIn(link.query.split("token=")[1], json.dumps(self.job.status()))

    def test_garbage_is_answered_and_does_not_keep_others_out(self):
        for words in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", bytes(range(256)) * 8, b"\r\n" * 9000,
                      b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
                      b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n"):
            with self.job.connect() as connection:
                with contextlib.suppress(OSError):
                    connection.sendall(words)
                    connection.shutdown(socket.SHUT_WR)
                answer = rest_of(connection)
            self.assertTrue(answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431", b"HTTP/1.1 405")), (words[:20], answer[:60]))
        self.assertEqual(self.job.ask("/healthz")[0], 200)

    def test_whoever_holds_connections_open_loses_the_oldest(self):
        with contextlib.ExitStack() as held:
            slow = [held.enter_context(self.job.connect(b"GET / HT")) for _ in range(150)]
            self.assertEqual(self.job.ask("/healthz")[0], 200)
            descriptors = len(os.listdir(f"/proc/{self.job.process.pid}/fd"))
            self.assertLess(descriptors, 200)
            watch = Stopwatch()  # slow as they are, they have 10 s
            with concurrent.futures.ThreadPoolExecutor(len(slow)) as waiting:
                list(waiting.map(rest_of, slow))
            self.assertLess(watch.fair(), 60)

    def test_another_user_who_reads_no_answer_keeps_nobody_out(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        attack = (
            "import socket, sys\n"
            "held = []\n"
            "while True:\n"
            "    while len(held) < 64:\n"
            "        s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048); s.settimeout(2)\n"
            "        try:\n"
            "            s.connect(('127.0.0.1', int(sys.argv[1])))\n"
            "            s.sendall(b'GET /dygraph.js HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n' * 150); held.append(s)\n"
            "        except OSError: s.close()\n"
            "    print('held', flush=True)\n"
            "    sys.stdin.readline()\n"
            "    for s in held[:]:\n"
            "        try:\n"
            "            s.setblocking(False)\n"
            "            if s.recv(1, socket.MSG_PEEK) == b'': raise OSError\n"
            "        except BlockingIOError: pass\n"
            "        except OSError: held.remove(s); s.close()\n")
        words = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", sys.executable, "-c", attack, str(self.job.address.port)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as attacker:
            try:
                for _ in range(4):
                    self.assertTrue(attacker.stdout.readline())
                    self.assertEqual(self.job.ask("/api/v1/runs")[0], 200)
                    attacker.stdin.write(b"\n")
                    attacker.stdin.flush()
            finally:
                attacker.kill()

    def test_too_many_streams_are_refused(self):
        with contextlib.ExitStack() as held:
            answers = []
            for _ in range(34):
                connection = held.enter_context(self.job.connect(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"))
                answers.append(connection.recv(12))
            self.assertEqual(answers[0], b"HTTP/1.1 200")
            self.assertEqual(answers[-1], b"HTTP/1.1 503")
            self.assertEqual(self.job.ask("/healthz")[0], 200)


def own_address():
    """An address of this host that is not loopback's, or None. The network of a test's own has loopback alone, and is given one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, contextlib.suppress(OSError):
        any_socket.connect(("192.0.2.1", 9))  # sends nothing
        return any_socket.getsockname()[0]
    given = "198.51.100.1"
    added = "DTRUN_TEST_PRESSURE" in os.environ and subprocess.run(["ip", "address", "add", f"{given}/32", "dev", "lo"], check=False).returncode == 0
    return given if added else None


class BoundTest(unittest.TestCase):
    def test_beyond_loopback_it_is_https_and_for_the_token_alone(self):
        address = own_address()
        if not address:
            self.skipTest("this host has no address but loopback's")
        job = Job("--http_bind", address, *SLEEP)
        self.addCleanup(job.end)
        self.assertEqual((job.address.scheme, job.address.hostname), ("https", address))
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

        def ask(path):
            connection = http.client.HTTPSConnection(address, job.address.port, context=trusting)
            with contextlib.closing(connection):
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        self.assertEqual(ask("/api/v1/runs")[0], 403)  # by the job's own user, too
        self.assertEqual(ask("/metrics")[0], 403)
        link = urllib.parse.urlsplit(job.link())
        status, body = ask("/api/v1/runs?" + link.query)
        self.assertEqual((status, json.loads(body)[0]["run_id"]), (200, job.id))
        with job.connect(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") as plain:
            self.assertNotIn(b"HTTP/1.1 200", rest_of(plain))

    def test_at_all_addresses_loopback_is_trusted_no_more_and_metrics_have_a_token_of_their_own(self):
        os.environ["DTRUN_KEY"] = digits = "0123456789abcdef0123456789abcdef"
        self.addCleanup(os.environ.pop, "DTRUN_KEY")
        job = Job("--http_bind", "0.0.0.0", *SLEEP)
        self.addCleanup(job.end)
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

        def ask(path, host):
            with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", job.address.port, context=trusting)) as connection:
                connection.request("GET", path, headers={"Host": host})
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        def hkdf(secret, info, size):  # RFC 5869, for up to 32 bytes
            extracted = hmac.digest(b"dtrun job key 1", secret, "sha256")
            return hmac.digest(extracted, info + b"\1", "sha256")[:size]

        token = hkdf(hkdf(digits.encode(), b"secret", 32), b"dtrun page of run ", 16).hex()
        for path in ("/", "/api/v1/runs", "/metrics", "/api/v1/runs?token=" + token):
            self.assertEqual(ask(path, "localhost")[0], 403, path)
        status, body = ask("/metrics?token=" + token, "10.1.2.3:29401")
        self.assertEqual(status, 200)
        self.assertIn(job.id, body)


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = browser.chromium()
        if cls.driver is None:
            raise unittest.SkipTest("there is no chromium, chromedriver or selenium here")
        cls.addClassCleanup(cls.driver.quit)
        cls.job = TwoNodes()
        cls.addClassCleanup(cls.job.end)

    def data(self, selector):
        return self.driver.execute_script("const e = document.querySelector(arguments[0] + ' data'); return e ? e.value : null", selector)

    def shown(self):
        number = lambda text: float(text) if text else None
        progress = {name: number(self.data(f"[data-progress='{name}']")) for name in ("step", "of", "epoch", "loss", "samples/s")}
        facts = {name: number(self.data(f"[data-fact='{name}']")) for name in ("generation", "world size", "restarts", "membership changes")}
        return {**progress, **facts}

    def told(self):
        run = self.job.status()
        progress = run.get("progress", {})
        return {"step": progress.get("step"), "of": progress.get("total_steps"), "epoch": progress.get("epoch"), "loss": progress.get("loss"),
                "samples/s": progress.get("samples_per_second"), "generation": run["generation"], "world size": run["world_size"],
                "restarts": run["restarts"], "membership changes": run["membership_changes"]}

    def points(self, curve):
        return self.driver.execute_script(f"return (curves.{curve} || []).map(p => p.slice(0, 2))")

    def widths(self):
        return self.driver.execute_script(
            "return [...document.querySelectorAll('figure:not([hidden]) .chart canvas')].map(c => c.clientWidth)")

    def assert_nothing_went_wrong(self):
        self.assertEqual(browser.console(self.driver), [])
        here = f"http://127.0.0.1:{self.job.address.port}/"
        self.assertEqual([url for url in browser.requests(self.driver) if not url.startswith(here)], [])

    def assert_curves_are_the_log(self):
        for event, name, curve in (("train", "loss", "loss"), ("train", "samples_per_second", "samples_per_second"),
                                   ("train", "learning_rate", "learning_rate"), ("eval", "accuracy", "eval_accuracy")):
            def same(event=event, name=name, curve=curve):
                shown = self.points(curve)
                last = shown[-1][0] if shown else 0
                return shown and shown == [[line["step"], line[name]] for line in self.job.lines(event) if line["step"] <= last]
            same.__name__ = f"{curve}: {self.points(curve)[-3:]} is the log's {self.job.lines(event)[-3:]}"
            wait_for(same)

    def test_it_shows_what_the_status_says_while_a_worker_is_killed(self):
        driver = self.driver
        driver.get(self.job.address.geturl())
        browser.resize(driver, 1280, 900)
        wait_for(lambda: len(self.points("loss")) > 5 and self.points("eval_accuracy"))
        wait_for(lambda: (found := self.widths()) and all(550 < width < 700 for width in found))  # two beside each other
        wait_for(lambda: self.told() == self.shown())
        self.assertIn("running", driver.title)
        self.assert_curves_are_the_log()

        self.assert_ranks_are_the_status()
        os.kill(self.job.status()["nodes"][1]["pids"][0], signal.SIGKILL)  # of a node that is not apart
        seen = "return [...document.querySelectorAll('#events .failure')].map(e => e.textContent)"
        watch = Stopwatch()
        failures = wait_for(lambda: driver.execute_script(seen))
        self.assertLess(watch.fair(), SEEN_WITHIN_S)
        self.assertIn("SIGKILL", failures[0])
        wait_for(lambda: self.shown()["restarts"] == 1 and self.shown()["world size"] == 2)
        step = self.told()["step"] or 0
        wait_for(lambda: self.points("loss")[-1][0] > step + 10)
        self.assert_curves_are_the_log()
        wait_for(lambda: self.told() == self.shown())
        self.assert_the_drawer_has_the_failure()
        self.assert_life_is_the_goodput()
        self.assert_the_config_is_shown()

        browser.resize(driver, 400, 800)
        wait_for(lambda: driver.execute_script("return document.documentElement.scrollWidth") <= 400)
        wait_for(lambda: all(300 < width <= 400 for width in self.widths()))
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        self.assertEqual(driver.execute_script("return getComputedStyle(document.body).backgroundColor"), "rgb(22, 24, 28)")
        self.assert_each_picture_has_words()
        self.assert_keyboard_reaches_everything()
        self.assert_nothing_went_wrong()
        self.assert_text_without_scripts()

    def table(self, selector):
        """The numbers of its cells, by row; None for one that is not measured."""
        return self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(row => [...row.querySelectorAll('data')]"
            ".map(cell => cell.value === '' ? null : Number(cell.value)))", selector)

    def assert_ranks_are_the_status(self):
        self.driver.execute_script("find('heat-numbers').open = true")

        def newest_window_is_the_status():
            told = [node["workers"][0].get("own_time_ratio") for node in self.job.status()["nodes"]]
            return None not in told and [row[0] for row in self.table("#heat-table")] == told
        wait_for(newest_window_is_the_status)
        # Drawn as the numbers say: the two newest cells of the picture have the colours of their ratios.
        self.assertEqual(*self.driver.execute_script(
            """drawHeat();
               const map = find("heat"), canvas = map.getContext("2d"), columns = windows.filter(w => w[1] === shown.generation);
               const ground = groundOf(find("heat-part"));
               const x = (1 - 0.5 / WINDOWS_KEPT) * map.width, ratios = columns[columns.length - 1][2];
               const strip = canvas.getImageData(x, 0, 1, map.height).data, high = map.height / ratios.length;
               const drawn = ratios.map((_, rank) => 4 * Math.floor((rank + 0.4) * high)).map(at => strip.slice(at, at + 3));
               return [drawn.map(pixel => `rgb(${pixel})`), ratios.map(ratio => heatColour(ratio, ground))];"""))

        if not self.job.apart():
            return

        def matrix_is_the_status():
            times = [node["workers"][0]["times"] for node in self.job.status()["nodes"]]
            waited = [100 * times[rank]["wait_for"][1 - rank] / times[rank]["steps"] for rank in (0, 1)]
            return waited[0] > 0 and self.table("#matrix") == [[None, waited[0]], [waited[1], None]]
        wait_for(matrix_is_the_status)

    def assert_the_drawer_has_the_failure(self):
        self.driver.execute_script("document.querySelectorAll('#ranks button')[1].click()")
        wait_for(lambda: self.driver.find_element("css selector", "#rank-title").text == f"Rank 1 on {socket.gethostname()}")

        def drawer_is_the_status():
            worker = self.job.status()["nodes"][1]["workers"][0]
            told = [worker["pid"], worker["step"], worker["usage"]["resident_bytes"], worker["usage"]["cpu"]]
            return told == [float(self.data(f"[data-rank='{name}']") or -1) for name in ("pid", "step", "memory", "cpu")]
        wait_for(drawer_is_the_status)
        self.assertIn("SIGKILL", self.driver.find_element("css selector", "#rank-words").text)

    def seconds_of_kinds(self):
        return {kind: seconds for kind, seconds in self.job.status()["goodput"].items() if kind not in ("ratio", "steps_redone")}

    def assert_life_is_the_goodput(self):
        self.driver.execute_script("find('life-numbers').open = true")

        def seconds_of_kinds_are_alike():
            shown = {}
            for kind, seconds in self.driver.execute_script("return lifeSpans().map(span => [span.kind, span.end - span.begin])"):
                shown[kind] = shown.get(kind, 0) + seconds
            return all(abs(shown.get(kind, 0) - seconds) < 1 + seconds / 10 for kind, seconds in self.seconds_of_kinds().items())
        wait_for(seconds_of_kinds_are_alike)
        bars = self.driver.execute_script("return [...document.querySelectorAll('#life rect')].map(bar => bar.getAttribute('class'))")
        self.assertLessEqual({"kind-training", "kind-loading"}, set(bars))
        self.assertEqual(self.driver.execute_script("return document.querySelectorAll('#life .mark').length"), 1)
        self.assertGreaterEqual(len(self.table("#life-table")), len(bars) - 1)

    def assert_the_config_is_shown(self):
        self.driver.execute_script("find('config-part').open = true")
        wait_for(lambda: "train.eval_steps 400" in self.driver.find_element("css selector", "#config").text)
        version = subprocess.run([DTRUN, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        self.assertIn(f"dtrun {version}", self.driver.find_element("css selector", "#version").text)

    def test_left_open_it_goes_on_once_its_coordinator_is_restarted(self):
        driver = self.driver
        driver.get(self.job.address.geturl())
        wait_for(lambda: self.points("loss"))
        wait_for(lambda: sum(self.seconds_of_kinds().values()) > 2 * SAID_FROM_S)
        lost = driver.find_element("css selector", "#lost")
        driver.execute_script("patience = 2500")
        os.kill(self.job.store.pid, signal.SIGSTOP)  # its connection stays
        wait_for(lost.is_displayed)
        os.kill(self.job.store.pid, signal.SIGCONT)
        wait_for(lambda: not lost.is_displayed())
        os.kill(self.job.store.pid, signal.SIGKILL)
        wait_for(lost.is_displayed)
        step = self.shown()["step"]
        self.job.store.wait()
        self.job.store = self.job.start_store()
        wait_for(lambda: not lost.is_displayed())
        wait_for(lambda: (self.shown()["step"] or 0) > step + 10 and self.told() == self.shown())
        wait_for(lambda: "when this coordinator began" in driver.find_element("css selector", "#life-since").text)
        self.assert_curves_are_the_log_since_then(step)
        self.assertEqual([line for line in browser.console(driver) if "net::ERR_" not in line], [])

    def assert_curves_are_the_log_since_then(self, step):
        shown = wait_for(lambda: self.points("loss"))
        self.assertGreater(shown[-1][0], step)
        logged = {line["step"]: line["loss"] for line in self.job.lines("train")}
        self.assertEqual(shown, [[at, logged[at]] for at, _ in shown])

    def assert_each_picture_has_words(self):
        charts = self.driver.execute_script(
            "return [...document.querySelectorAll('figure:not([hidden])')].map(f => [f.querySelector('[role=img]').ariaLabel,"
            " (f.querySelector('details').open = true, f.querySelector('summary').textContent)])")
        self.assertGreaterEqual(len(charts), 4)
        self.assertTrue(all(label and label.startswith("curve of ") for label, _ in charts), charts)
        wait_for(lambda: self.driver.execute_script(
            "return [...document.querySelectorAll('figure:not([hidden]) details')].every(d => d.querySelectorAll('tbody tr').length > 0)"))
        for picture, words in (("#heat", r"own times of 2 ranks in \d+ windows; in the newest rank [01] is the slowest, with "),
                               ("#life svg", "what happened from ")):
            wait_for(lambda picture=picture, words=words: re.match(words, self.driver.execute_script(
                "return document.querySelector(arguments[0]).ariaLabel", picture)))
        sizes = self.driver.execute_script(
            "return performance.getEntriesByType('resource').filter(e => /(js|css|svg)$/.test(e.name)).map(e => e.decodedBodySize)")
        self.assertTrue(100_000 < sum(sizes) < 200_000, sizes)

    def assert_keyboard_reaches_everything(self):
        from selenium.webdriver import ActionChains  # pylint: disable=import-outside-toplevel
        from selenium.webdriver.common.keys import Keys  # pylint: disable=import-outside-toplevel
        self.driver.execute_script("document.activeElement.blur()")
        reached = set()
        for _ in range(60):
            ActionChains(self.driver).send_keys(Keys.TAB).perform()
            reached.add(self.driver.execute_script("const e = document.activeElement; return e.id || e.tagName"))
        self.assertLessEqual({"log", "filter", "SUMMARY", "A", "BUTTON", "heat", "rank-close"}, reached)
        # The status comes again each second, and must not take the focus, nor a button that is being pressed.
        button = "document.querySelector('#ranks button')"
        self.driver.execute_script(f"{button}.focus(); document.querySelector('#ranks td:nth-child(2)').textContent = 'old'")
        wait_for(lambda: self.driver.execute_script("return document.querySelector('#ranks td:nth-child(2)').textContent !== 'old'"))
        self.assertTrue(self.driver.execute_script(f"return document.activeElement === {button}"))

    def assert_text_without_scripts(self):
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        self.driver.get(self.job.address.geturl())
        text = self.driver.find_element("css selector", "body").text
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        self.assertIn(f"run {self.job.id} at ", text)
        self.assertIn("world size 2, nodes wanted 2, restarts 1 of 3", text)
        self.assertRegex(text, r"step \d+ of \d+, epoch \d+\.\d\d, loss ")


def make_pictures(folder):
    """A run that lost a worker, as the docs show it."""
    job = TwoNodes(epochs=20, workers=4)
    driver = browser.chromium()
    driver.get(job.address.geturl())

    def wait_for_step(step):
        wait_for(lambda: (job.lines("train") or [{"step": 0}])[-1]["step"] > step)

    for step in (300, 700):
        wait_for_step(step)
        os.kill(job.status()["nodes"][1]["pids"][0], signal.SIGKILL)
        wait_for(lambda: job.status()["phase"] == "running")
    wait_for_step(1400)
    for name, width, height, scheme, top in (("page", 1280, 1120, "light", "job"), ("page-narrow", 400, 900, "dark", "job"),
                                             ("page-ranks", 1280, 1000, "light", "life-title")):
        browser.resize(driver, width, height)
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        driver.execute_script("select(arguments[0] === 'job' ? null : 0); find(arguments[0]).scrollIntoView()", top)
        time.sleep(2)  # for the redrawing
        driver.save_screenshot(str(folder / f"{name}.png"))
    driver.quit()
    job.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pictures"]:
        make_pictures(pathlib.Path(sys.argv[2]))
        sys.exit(0)
    cases.run()
