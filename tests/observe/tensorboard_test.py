"""TensorBoard itself, with both of its readers, watches a run that is killed and goes on: each shows the points of metrics.jsonl,
each step once.

  tensorboard_test.py BUILD [unittest options…]
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import cases
from clock import eventually
from jobs import exit_code, free_port, lines_of, stopping_dtrun, wait_for

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
VENV = BUILD / "tensorboard"
JOB = ["--standalone", "--nproc_per_node", "2", ROOT / "configs/fashion_mnist_convnet.json",
       "train.report_to=tensorboard", "train.logging_steps=1", "train.save_steps=10", "train.eval_steps=10", "train.max_steps=40"]
HELD_IN = 16  # steps: the newest checkpoint is older
READERS = {"fast": "true", "python": "false"}  # --load_fast


def tensorboard():
    """Its program in an environment of the build's own, or None."""
    program = VENV / "bin/tensorboard"
    if not program.exists():
        venv.create(VENV, with_pip=True)
        done = subprocess.run([VENV / "bin/pip", "install", "-q", "tensorboard", "setuptools<81"], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)
            return None
    return program


def as_float(value):
    return struct.unpack("f", struct.pack("f", value))[0]


class Board:
    """A TensorBoard that looks at a folder every second."""

    def __init__(self, program, folder, load_fast):
        self.port = free_port()
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([program, "--logdir", folder, "--port", str(self.port), "--reload_interval", "1",
                                         f"--load_fast={load_fast}"], stdout=self.log, stderr=self.log, start_new_session=True)

    def close(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        exit_code(self.process)
        self.log.close()

    def points(self, tag):
        """[(step, value)], as its page asks for them; none as long as it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/data/plugin/scalars/scalars?run=.&tag={tag}") as answer:
                return [(step, value) for _, step, value in json.load(answer)]
        except OSError:
            return []


class TensorBoardTest(unittest.TestCase):
    def setUp(self):
        program = tensorboard()
        if program is None:
            self.skipTest("tensorboard cannot be had from PyPI here")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="dtrun-tensorboard-test-")))
        self.output = self.folder / "run"
        (self.output / "runs").mkdir(parents=True)
        self.boards = {name: Board(program, self.output / "runs", fast) for name, fast in READERS.items()}
        for board in self.boards.values():
            self.addCleanup(board.close)

    def lines(self, event):
        return lines_of(self.output / "metrics.jsonl", event)

    def expected(self, event, name):
        return [(line["step"], as_float(line[name])) for line in self.lines(event)]

    def test_both_readers_show_each_point_of_the_log_once_through_a_kill(self):
        held = f"updated:rank=0:count={HELD_IN}:after={self.folder / 'never'}"
        job = subprocess.Popen([stopping_dtrun(BUILD, self.folder), *JOB, f"output_dir={self.output}"], stdout=subprocess.DEVNULL,
                               start_new_session=True, env={**os.environ, "DTRUN_TEST_STOP": held})
        wait_for(lambda: len(self.lines("train")) == HELD_IN - 1)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        for name, board in self.boards.items():  # they have read what will count no more
            wait_for(lambda board=board: len(board.points("train/loss")) == HELD_IN - 1, name)
        subprocess.run([BUILD / "bin/dtrun", *JOB, f"output_dir={self.output}"], stdout=subprocess.DEVNULL, check=True)
        self.assertGreater(HELD_IN - 1, self.lines("start")[-1]["step"])  # some steps were done again
        self.assertEqual(len(list((self.output / "runs").iterdir())), 2)
        for name, board in self.boards.items():
            for event, key in (("train", "loss"), ("train", "learning_rate"), ("eval", "loss"), ("eval", "accuracy")):
                expected = self.expected(event, key)
                self.assertTrue(expected)
                eventually(lambda: board.points(f"{event}/{key}") == expected)
                self.assertEqual(board.points(f"{event}/{key}"), expected, f"{name}: {event}/{key}")


if __name__ == "__main__":
    cases.run()
