"""Debian's Prometheus scrapes a job of two nodes through the death of a worker: its counters, its alerts, and each query of the board
that dtrun ships.

  prometheus_test.py BUILD [unittest options…]
"""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import cases
from clock import Stopwatch, soon
from jobs import exit_code, free_port, lines_of, status, wait_for

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SHIPPED = ROOT / "configs/prometheus"
DTRUN = BUILD / "bin/dtrun"
SCRAPE_MS = 700  # and its limit; not in step with reports, of which there is one a second
SAMPLES = 20  # of the steady part
LATE_S = 2  # at most, since the coordinator hears of steps once a second


class Job:
    """Two nodes of one worker each on this host, until end()."""

    def __init__(self, folder):
        self.output, self.port, rendezvous = folder / "run", free_port(), free_port()
        self.told = open(folder / "told", "w", encoding="utf-8")
        self.nodes = [subprocess.Popen(
            [DTRUN, "--nnodes", "2", "--rdzv_endpoint", f"127.0.0.1:{rendezvous}", "--rdzv_id", "scraped", "--insecure", "--nproc_per_node", "1",
             "--lanes", "1", "--max_restarts", "5", "--progress", "none", "--http_port", str(self.port),
             ROOT / "configs/fashion_mnist_convnet.json", f"output_dir={self.output}", "train.logging_steps=1", "train.eval_steps=0",
             "train.save_steps=200", "train.num_train_epochs=1000"],
            stdout=self.told, stderr=self.told, env={**os.environ, "XDG_RUNTIME_DIR": str(folder)}, start_new_session=True)
            for _ in range(2)]  # that with the coordinator has the page

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return answer.read().decode(), answer.headers["Content-Type"]

    def kill_worker(self, rank):
        started = [event for event in lines_of(self.output / "events.jsonl", "worker_started") if event["rank"] == rank]
        os.kill(started[-1]["pid"], signal.SIGKILL)

    def end(self):
        for node in self.nodes:
            node.send_signal(signal.SIGTERM)
        for node in self.nodes:
            exit_code(node)
        self.told.close()


class Prometheus:
    """It scrapes `port` every SCRAPE_MS, with the rules that dtrun ships."""

    def __init__(self, folder, port):
        self.port = free_port()
        soon(SCRAPE_MS / 1000)
        shutil.copy(SHIPPED / "alerts.yml", folder)
        (folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: {SCRAPE_MS}ms, scrape_timeout: {SCRAPE_MS}ms, evaluation_interval: 1s}}\nrule_files: [alerts.yml]\n"
            f"scrape_configs: [{{job_name: dtrun, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"], start_new_session=True)

    def close(self):
        self.process.terminate()
        exit_code(self.process)

    def ask(self, expression):
        """Nothing as long as it does not answer."""
        words = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{words}") as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as refusal:
            if refusal.code == 503:  # it is starting
                return []
            raise AssertionError(f"{expression}: {refusal.read().decode()}") from refusal
        except OSError:
            return []

    def fault(self):
        """What it says of a scrape that failed."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/targets") as answer:
            return [target["lastError"] for target in json.load(answer)["data"]["activeTargets"]]

    def query(self, expression):
        """[(labels, value)]"""
        return [(one["metric"], float(one["value"][1])) for one in self.ask(expression)]

    def value(self, expression):
        found = self.query(expression)
        return found[0][1] if len(found) == 1 else math.nan


def expressions_of(board):
    """Each query of a Grafana board, as Grafana would send it for the run."""
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [note["expr"] for note in board["annotations"]["list"]]
    return [one.replace("$__rate_interval", "20s").replace("$run_id", "scraped") for one in asked]


@unittest.skipUnless(shutil.which("prometheus") and shutil.which("promtool"), "prometheus and promtool are not both installed")
class PrometheusTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="dtrun-prometheus-test-")))
        cls.job = Job(cls.folder)
        cls.addClassCleanup(cls.job.end)
        try:
            cls.run_through_a_kill()
        except AssertionError:
            print((cls.folder / "told").read_text(), cls.prometheus.fault(), file=sys.stderr)
            raise

    @classmethod
    def run_through_a_kill(cls):
        steps = lambda: len(lines_of(cls.job.output / "metrics.jsonl", "train"))
        wait_for(lambda: steps() > 20, "steps")
        cls.prometheus = Prometheus(cls.folder, cls.job.port)
        cls.addClassCleanup(cls.prometheus.close)
        wait_for(lambda: cls.prometheus.value("dtrun_train_steps_total") > 0, "a first scrape")
        watch = Stopwatch()
        counter = "dtrun_train_steps_total[10m]"
        wait_for(lambda: cls.prometheus.value(f"count_over_time({counter})") >= SAMPLES, f"{SAMPLES} scrapes")
        cls.samples = [(at, int(steps)) for at, steps in cls.prometheus.ask(counter)[0]["values"]]
        cls.stalled_s = watch.wall() - watch.fair()
        cls.job.kill_worker(1)
        wait_for(lambda: cls.prometheus.value("dtrun_job_restarts_total") == 1, "a restart")
        whole = "dtrun_world_size == 2 and on (run_id) dtrun_job_phase{phase='running'} == 1 and on (run_id) dtrun_train_step > 0"
        wait_for(lambda: cls.prometheus.query(whole) and len(cls.prometheus.query("dtrun_worker_steps_total")) == 2, "two workers again")
        after = cls.prometheus.value("dtrun_train_steps_total")
        wait_for(lambda: cls.prometheus.value("dtrun_train_steps_total") > after + 50, "steps after it")

    def test_up_stays_1_and_no_counter_falls(self):
        self.assertEqual(self.prometheus.value("min_over_time(up{job='dtrun'}[10m])"), 1)
        self.assertGreater(self.prometheus.value("dtrun_job_generation"), 1)
        text, _ = self.job.metrics()
        counters = re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE)
        self.assertGreater(len(counters), 10)
        for counter in counters:
            series = self.prometheus.query(f"resets({counter}[10m])")
            self.assertTrue(series, counter)
            for labels, resets in series:
                self.assertEqual(resets, 0, f"{counter} {labels}")

    def test_steps_are_counted_as_they_are_in_the_log_and_a_moment_later(self):
        done_at = {line["step"]: line["time"] for line in lines_of(self.job.output / "metrics.jsonl", "train")}
        late = [at - done_at[steps] for at, steps in self.samples]
        print(f"steps are counted {min(late):.2f} to {max(late):.2f} s after the log has them, stalled for {self.stalled_s:.2f} s")
        self.assertGreaterEqual(min(late), 0)
        self.assertLess(max(late), LATE_S + self.stalled_s)
        self.assertLess(min(late[-10:]), LATE_S / 2 + self.stalled_s)  # none is lost

    def test_failures_checkpoints_and_step_durations_are_those_of_the_run(self):
        run = status(DTRUN, "scraped", env={**os.environ, "XDG_RUNTIME_DIR": str(self.folder)})
        self.assertEqual(run["failures"], {"exit": 0, "signal": 1, "out_of_memory": 0, "hung": 0, "node_lost": 0})
        self.assertEqual(self.prometheus.query("dtrun_job_failures_total > 0")[0][0]["cause"], "signal")
        # Each checkpoint of the log is on the disk a moment later, and known to the one that scrapes.
        saved = [line["step"] for line in lines_of(self.job.output / "metrics.jsonl", "save")]
        wait_for(lambda: self.prometheus.value("dtrun_checkpoint_step") >= saved[-1], f"the checkpoint of step {saved[-1]}")
        self.assertEqual(self.prometheus.value("dtrun_checkpoint_step") % 200, 0)
        self.assertGreaterEqual(self.prometheus.value("dtrun_checkpoints_total"), 1)
        self.assertGreater(self.prometheus.value("dtrun_checkpoint_bytes"), 2 * 4 * 27100)  # parameters and momentum
        self.assertLess(self.prometheus.value("dtrun_checkpoint_duration_seconds"), 60)
        self.assertEqual(self.prometheus.value("dtrun_checkpoint_failures_total"), 0)
        # Of all steps rank 0 tells but those of the newest second.
        told, done = self.prometheus.value("dtrun_step_duration_seconds_count"), self.prometheus.value("dtrun_train_steps_total")
        self.assertGreater(told, 0.5 * done)
        self.assertLess(told, 1.1 * done)
        mean = self.prometheus.value("dtrun_step_duration_seconds_sum") / told
        median = self.prometheus.value("histogram_quantile(0.5, dtrun_step_duration_seconds_bucket)")
        self.assertLess(median, 5 * mean)
        self.assertGreater(median, mean / 10)

    def test_what_workers_exchange_is_counted_where_it_is_measured(self):
        told = {(labels["rank"], labels["direction"]): rate for labels, rate in
                self.prometheus.query("increase(dtrun_worker_network_bytes_total[10m])")}
        # Two workers of one host read each other's gradients in place: messages have the stop vote and little more.
        self.assertEqual(set(told), {(rank, direction) for rank in "01" for direction in ("sent", "received")})
        for each, increase in told.items():
            self.assertGreater(increase, 0, each)
        self.assertFalse(self.prometheus.query("{__name__=~'dtrun_worker_gpu_.*'}"))  # not measured is not 0

    def test_the_steps_of_workers_and_of_the_job_agree(self):
        job = self.prometheus.value("increase(dtrun_train_steps_total[10m])")
        for labels, steps in self.prometheus.query("increase(dtrun_worker_steps_total[10m])"):
            self.assertGreater(steps, 0.5 * job, labels)
            self.assertLess(steps, 1.1 * job, labels)

    def test_promtool_has_nothing_to_say(self):
        text, content_type = self.job.metrics()
        self.assertIn("version=0.0.4", content_type)
        said = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "", ""))

    def test_each_query_of_the_board_returns_data(self):
        board = json.loads((SHIPPED / "dashboard.json").read_text())
        expressions = expressions_of(board)
        self.assertGreater(len(expressions), 20)
        without_data = [one for one in expressions if not self.prometheus.query(one)]
        # No evaluation has been done, there is no GPU, and at a quiet moment no generation begins.
        self.assertLessEqual({one for one in without_data},
                             {one for one in expressions if "dtrun_eval" in one or "_gpu_" in one or "changes(" in one})
        self.assertTrue(self.prometheus.query("dtrun_job_generation and on (run_id) (changes(dtrun_job_generation[10m]) > 0)"))

    def test_the_alerts_fire_and_the_snippets_are_read(self):
        rules = self.folder / "rules"
        rules.mkdir()
        for file in (SHIPPED / "alerts.yml", ROOT / "tests/observe/alerts_test.yml"):
            shutil.copy(file, rules)
        said = subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=rules, capture_output=True, text=True, check=False)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        # Files of other machines are not here.
        snippets = (SHIPPED / "prometheus.yml").read_text().replace("/etc/prometheus/dtrun.token", str(rules / "token"))
        (rules / "token").write_text("secret")
        (rules / "prometheus.yml").write_text(snippets)
        said = subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=rules, capture_output=True, text=True, check=False)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)


if __name__ == "__main__":
    cases.run()
