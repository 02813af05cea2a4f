"""A script of the user's own. With one line added dtrun shows its step, the time left and its loss, and which rank the others
wait for, in all places; without it the rank that the kernel keeps back, and where the ranks stand that wait for each other.

  any_program_test.py BUILD [unittest options…]
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "kit"), str(TESTS / "support")]
import kit_job
import cases
from clock import soon
from jobs import status, wait_for

DTRUN = pathlib.Path(sys.argv.pop(1)).resolve() / "bin/dtrun"
KUBEFLOW = TESTS / "e2e/kubeflow_server.py"
STEPS = 7000
# A line of each rank comes first, longer than what a status keeps of it. Each rank's steps take 20 ms: half of it rank 1 waits, for rank 0, which reads data. Rank 0 writes in place, rank 1 renames.
# They end when the test has seen all, and not before.
SCRIPT = """
import json, os, pathlib, sys, time
rank, waited = int(os.environ["RANK"]), 0.0
file = pathlib.Path(os.environ["DTRUN_HEARTBEAT_FILE"])
print("\\033[1mrank", rank, "loads", "é" * 200, file=sys.stderr, flush=True)
step = 0
while step < %d:
    step = %d if os.path.exists("enough") else min(step + 1, %d)
    time.sleep(0.01)
    waited -= time.perf_counter()
    time.sleep(0.01)
    waited += time.perf_counter()
    text = json.dumps({"step": step, "total": %d, "loss": 4.0 / step, "samples_per_second": 1600, "wait_s" if rank == 1 else "data_s": waited})
    if rank == 1:
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").rename(file)
    else:
        file.write_text(text)
""" % (STEPS, STEPS, STEPS - 100, STEPS)


# All but rank 1 begin a collective.
DEADLOCK = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    time.sleep(1000)
dist.all_reduce(torch.ones(1))
"""


def get(address):
    with urllib.request.urlopen(address) as answer:
        return answer.read().decode()


class Kubeflow:
    """A status server with a certificate of its own."""

    def __init__(self, test):
        folder = pathlib.Path(test.folder.name)
        self.files = [str(folder / name) for name in ("crt", "key")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj",
                        "/CN=trainer", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self.files[1], "-out", self.files[0]],
                       check=True, capture_output=True)
        (folder / "token").write_text("a-token\n")
        self.told = folder / "told"
        with self.told.open("w") as told:
            self.server = subprocess.Popen([sys.executable, KUBEFLOW, *self.files, "200"], stdout=told)
        test.addCleanup(self.server.wait)
        test.addCleanup(self.server.kill)
        port = wait_for(self.lines)[0]
        self.environment = {"KUBEFLOW_TRAINER_SERVER_URL": "https://127.0.0.1:%s/status" % port,
                            "KUBEFLOW_TRAINER_SERVER_CA_CERT": self.files[0], "KUBEFLOW_TRAINER_SERVER_TOKEN": str(folder / "token")}

    def lines(self):
        return self.told.read_text().rpartition("\n")[0].splitlines()

    def percentages(self):
        return [json.loads(line)["body"]["trainerStatus"]["progressPercentage"] for line in self.lines()[1:]]


class AnyProgram(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start(self, script, *options, nproc=2, environment={}):
        file = pathlib.Path(self.folder.name) / "train.py"
        file.write_text(script)
        self.run_id = pathlib.Path(self.folder.name).name
        job = subprocess.Popen([DTRUN, "--standalone", "--rdzv_id", self.run_id, "--nproc_per_node", str(nproc), *options, file],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder.name,
                               env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
        self.addCleanup(lambda: job.poll() is None and (job.kill(), job.communicate()))
        return job

    def let_it_end(self):
        (pathlib.Path(self.folder.name) / "enough").touch()

    def verdict(self):
        return status(DTRUN, self.run_id).get("verdict")

    def test_one_line_in_a_script_shows_its_progress(self):
        kubeflow = Kubeflow(self)
        job = self.start(SCRIPT, "--progress", "json", environment=kubeflow.environment)

        def both_told():
            now = status(DTRUN, self.run_id)
            workers = now["nodes"][0].get("workers", []) if now and now["nodes"] else []
            told = len(workers) == 2 and all(worker.get("times", {}).get("steps", 0) > 100 for worker in workers)
            return now if told and "progress" in now else None

        now = wait_for(both_told)
        self.assertEqual(now["progress"]["total_steps"], STEPS)
        self.assertAlmostEqual(now["progress"]["loss"], 4.0 / now["progress"]["step"], places=6)
        self.assertEqual(now["progress"]["samples_per_second"], 1600)
        for rank, worker in enumerate(now["nodes"][0]["workers"]):
            self.assertGreater(worker["step"], 100)
            self.assertTrue(worker["usage"]["last_line"].startswith("rank %d loads éé" % rank), worker)
            self.assertLessEqual(len(worker["usage"]["last_line"].encode()), 160)
            times = worker["times"]
            waited, other = ("wait_peers", "data") if rank == 1 else ("data", "wait_peers")
            self.assertTrue(0.3 < times[waited] / (times["math"] + times[waited]) < 0.7, worker)
            self.assertEqual(times[other], 0, worker)
        verdict = wait_for(self.verdict)
        self.assertEqual((verdict["rank"], verdict["cause"]), (0, "data"), verdict)
        self.assertIn("rank 0 on ", verdict["text"])
        self.assertIn("of each step more for data", verdict["text"])
        page = now["page"]["address"]
        shown = json.loads(get("%s/api/v1/runs/%s" % (page, self.run_id)))
        self.assertEqual(shown["progress"]["total_steps"], STEPS)
        self.assertEqual(shown["verdict"]["rank"], 0)
        loss = json.loads(get("%s/api/v1/runs/%s/series" % (page, self.run_id)))
        self.assertIn("loss", json.dumps(loss))
        metrics = get(page + "/metrics")
        for name in ("dtrun_train_total_steps{run_id=\"%s\"} %d" % (self.run_id, STEPS), "dtrun_train_loss{", "dtrun_worker_steps_total{",
                     "dtrun_worker_straggler{"):
            self.assertIn(name, metrics)
        wait_for(lambda: len(kubeflow.percentages()) > 1)
        self.let_it_end()
        out, err = job.communicate()
        self.assertEqual(job.returncode, 0, err)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([line["event"] for line in lines], ["progress"] * len(lines))
        self.assertEqual(lines[-1]["step"], STEPS)
        self.assertTrue(any((line["seconds_left"] or 0) > 0 for line in lines), lines)
        self.assertNotIn("HEARTBEAT_FILE", err)
        told = kubeflow.percentages()
        self.assertEqual(told, sorted(told))
        self.assertEqual(told[-1], 100)
        self.assertGreater(len(told), 2)

    @unittest.skipIf(kit_job.why_no_torch(), kit_job.why_no_torch())
    def test_ranks_that_wait_for_one_that_skips_a_collective_are_told_with_where_all_stand(self):
        job = self.start(DEADLOCK, "--notice_after", str(soon(4)), nproc=3, environment={"PYTHON_EXEC": kit_job.python_with_torch()})
        lines = []

        def told():
            lines.append(job.stderr.readline())
            return "no worker has written, computed or read anything" in lines[-1] or not lines[-1]

        wait_for(told)
        self.assertRegex(lines[-1], r"ranks 0, 2: (wait|all_reduce at) .* · rank 1: sleep", lines)
        self.assertIn("likely cause: rank 1", lines[-1])
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGTERM)
        job.communicate()

    def test_nonsense_is_told_once_and_disturbs_nobody(self):
        nonsense = ["{", '{"loss": 1}', '{"step": "x"}', "[]", "NaN", '{"step": NaN}', "{" * 100000, '{"step": 9e99}']
        job = self.start("import os, pathlib, time\nfor text in %r:\n  pathlib.Path(os.environ['DTRUN_HEARTBEAT_FILE'])"
                         ".write_text(text)\n  time.sleep(1.5)\n" % nonsense)
        _, err = job.communicate()
        self.assertEqual(job.returncode, 0, err)
        self.assertEqual(sorted(line.split(" has no report")[0] for line in err.splitlines() if "has no report" in line),
                         ["dtrun: rank 0's $DTRUN_HEARTBEAT_FILE", "dtrun: rank 1's $DTRUN_HEARTBEAT_FILE"], err)

    def test_a_touch_alone_is_no_progress(self):
        job = self.start("import os, time\nwhile not os.path.exists('enough'):\n"
                         "  os.utime(os.environ['DTRUN_HEARTBEAT_FILE'])\n  time.sleep(0.1)\n")
        wait_for(lambda: status(DTRUN, self.run_id))
        time.sleep(1.5)
        now = status(DTRUN, self.run_id)
        self.assertTrue(now)
        self.assertNotIn("progress", now)
        self.let_it_end()
        _, err = job.communicate()
        self.assertEqual((job.returncode, err), (0, ""))


if __name__ == "__main__":
    cases.run()
