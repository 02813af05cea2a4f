"""TensorBoard itself, with both of its readers, watches a run that is killed and goes on: each shows the points of metrics.jsonl,
each step once.

  tensorboard_test.py BUILD [unittest options…]
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
import venv

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = BUILD / "tensorboard"
JOB = [BUILD / "bin/dtrun", "--standalone", "--nproc_per_node", "2", ROOT / "configs/fashion_mnist_convnet.json",
       "train.report_to=tensorboard", "train.logging_steps=1", "train.save_steps=10", "train.eval_steps=10", "train.max_steps=40"]
KILLED_AFTER = 15  # steps: the newest checkpoint is older
READERS = {"fast": "true", "python": "false"}  # --load_fast
LIMIT_S = 90
EXIT_SKIPPED = 77


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


def free_port():
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return any_socket.getsockname()[1]


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
        self.process.wait(LIMIT_S)
        self.log.close()

    def points(self, tag):
        """[(step, value)], as its page asks for them; none as long as it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/data/plugin/scalars/scalars?run=.&tag={tag}", timeout=5) as answer:
                return [(step, value) for _, step, value in json.load(answer)]
        except OSError:
            return []


def lines_of(output, event):
    with contextlib.suppress(FileNotFoundError):
        lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if line["event"] == event]
    return []


def wait_for(condition):
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


class TensorBoardTest(unittest.TestCase):
    def setUp(self):
        program = tensorboard()
        if program is None:
            self.skipTest("tensorboard cannot be had from PyPI here")
        self.output = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="dtrun-tensorboard-test-"))) / "run"
        (self.output / "runs").mkdir(parents=True)
        self.boards = {name: Board(program, self.output / "runs", fast) for name, fast in READERS.items()}
        for board in self.boards.values():
            self.addCleanup(board.close)

    def expected(self, event, name):
        return [(line["step"], as_float(line[name])) for line in lines_of(self.output, event)]

    def test_both_readers_show_each_point_of_the_log_once_through_a_kill(self):
        job = subprocess.Popen([*JOB, f"output_dir={self.output}"], stdout=subprocess.DEVNULL, start_new_session=True)
        self.assertTrue(wait_for(lambda: len(lines_of(self.output, "train")) > KILLED_AFTER))
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        killed_at = lines_of(self.output, "train")[-1]["step"]
        for name, board in self.boards.items():  # they have read what will count no more
            self.assertTrue(wait_for(lambda board=board: len(board.points("train/loss")) >= killed_at), name)
        subprocess.run([*JOB, f"output_dir={self.output}"], stdout=subprocess.DEVNULL, check=True, timeout=LIMIT_S)
        self.assertGreater(killed_at, lines_of(self.output, "start")[-1]["step"])  # some steps were done again
        self.assertEqual(len(list((self.output / "runs").iterdir())), 2)
        for name, board in self.boards.items():
            for event, key in (("train", "loss"), ("train", "learning_rate"), ("eval", "loss"), ("eval", "accuracy")):
                expected = self.expected(event, key)
                self.assertTrue(expected)
                wait_for(lambda: board.points(f"{event}/{key}") == expected)
                self.assertEqual(board.points(f"{event}/{key}"), expected, f"{name}: {event}/{key}")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}", file=sys.stderr)
    sys.exit(1 if not result.wasSuccessful() else EXIT_SKIPPED if result.skipped else 0)
