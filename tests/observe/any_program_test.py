"""A script of the user's own, with one line added: dtrun shows its step, the time left and its loss, and where its time goes.

  any_program_test.py BUILD [unittest options…]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

DTRUN = pathlib.Path(sys.argv.pop(1)).resolve() / "bin/dtrun"
LIMIT_S = 60
STEPS = 400
# Each rank's steps take 20 ms; rank 1 waits for half of it. Rank 0 writes in place, rank 1 renames.
SCRIPT = """
import json, os, pathlib, time
rank, waited = int(os.environ["RANK"]), 0.0
file = pathlib.Path(os.environ["DTRUN_HEARTBEAT_FILE"])
for step in range(1, %d + 1):
    time.sleep(0.01)
    begin = time.perf_counter()
    time.sleep(0.01)
    waited += time.perf_counter() - begin if rank == 1 else 0
    text = json.dumps({"step": step, "total": %d, "loss": 4.0 / step, "samples_per_second": 1600, "wait_s": waited, "rank": rank})
    if rank == 1:
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").rename(file)
    else:
        file.write_text(text)
""" % (STEPS, STEPS)


def eventually(what):
    for _ in range(LIMIT_S * 10):
        found = what()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("not within %d s" % LIMIT_S)


def status(run_id):
    done = subprocess.run([DTRUN, "status", "--json", run_id], capture_output=True, text=True, check=False)
    runs = json.loads(done.stdout) if done.returncode == 0 else []
    return runs[0] if runs else None


class AnyProgram(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start(self, script, *options):
        file = pathlib.Path(self.folder.name) / "train.py"
        file.write_text(script)
        self.run_id = pathlib.Path(self.folder.name).name
        job = subprocess.Popen([DTRUN, "--standalone", "--rdzv_id", self.run_id, "--nproc_per_node", "2", *options, file],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.addCleanup(lambda: job.poll() is None and (job.kill(), job.communicate()))
        return job

    def test_one_line_in_a_script_shows_its_progress(self):
        job = self.start(SCRIPT, "--progress", "json")

        def both_told():
            now = status(self.run_id)
            workers = now["nodes"][0].get("workers", []) if now and now["nodes"] else []
            told = len(workers) == 2 and all(worker.get("times", {}).get("steps", 0) > 100 for worker in workers)
            return now if told and "progress" in now else None

        now = eventually(both_told)
        self.assertEqual(now["progress"]["total_steps"], STEPS)
        self.assertAlmostEqual(now["progress"]["loss"], 4.0 / now["progress"]["step"], places=6)
        self.assertEqual(now["progress"]["samples_per_second"], 1600)
        for rank, worker in enumerate(now["nodes"][0]["workers"]):
            self.assertGreater(worker["step"], 100)
            times = worker["times"]
            share = times["wait_peers"] / (times["math"] + times["wait_peers"])
            self.assertTrue(0.3 < share < 0.7 if rank == 1 else share == 0, worker)
        out, err = job.communicate(timeout=LIMIT_S)
        self.assertEqual(job.returncode, 0, err)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([line["event"] for line in lines], ["progress"] * len(lines))
        self.assertEqual(lines[-1]["step"], STEPS)
        self.assertTrue(any((line["seconds_left"] or 0) > 0 for line in lines), lines)
        self.assertNotIn("HEARTBEAT_FILE", err)

    def test_nonsense_is_told_once_and_disturbs_nobody(self):
        nonsense = ["{", '{"loss": 1}', '{"step": "x"}', "[]", "NaN", '{"step": NaN}', "{" * 100000, '{"step": 9e99}']
        job = self.start("import os, pathlib, time\nfor text in %r:\n  pathlib.Path(os.environ['DTRUN_HEARTBEAT_FILE'])"
                         ".write_text(text)\n  time.sleep(1.5)\n" % nonsense)
        _, err = job.communicate(timeout=LIMIT_S)
        self.assertEqual(job.returncode, 0, err)
        self.assertEqual(sorted(line.split(" has no report")[0] for line in err.splitlines() if "has no report" in line),
                         ["dtrun: rank 0's $DTRUN_HEARTBEAT_FILE", "dtrun: rank 1's $DTRUN_HEARTBEAT_FILE"], err)

    def test_a_touch_alone_is_no_progress(self):
        job = self.start("import os, time\nfor _ in range(30):\n  os.utime(os.environ['DTRUN_HEARTBEAT_FILE'])\n  time.sleep(0.1)\n")
        eventually(lambda: status(self.run_id))
        time.sleep(1.5)
        self.assertNotIn("progress", status(self.run_id))
        _, err = job.communicate(timeout=LIMIT_S)
        self.assertEqual((job.returncode, err), (0, ""))


if __name__ == "__main__":
    unittest.main()
