"""one_hash_test.py BIN_DIR: fp32 trains to the same bits on every kind of processor. The hashes are committed; here the real
dtrun finds them with each instruction set that this processor has (DTRUN_CPU), and with its worker on a Haswell of Intel and an
EPYC of AMD, which qemu-user plays. Without qemu-x86_64 these two are left out, and said."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import cases
from cases import long
from jobs import lines_of

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
QEMU = shutil.which("qemu-x86_64")

TRAIN = {"max_steps": 3, "global_batch_size": 16, "micro_batch_size": 8, "eval_steps": 0, "save_steps": 0, "learning_rate": 0.01}
PICTURES = {"type": "synthetic", "samples": 64, "shape": [1, 16, 16]}
WORDS = "to be or not to be that is the question whether tis nobler in the mind to suffer " * 20

# Each kind of model, and each rule whose numbers come from functions of a library elsewhere: cosine, powers, norms.
JOBS = {
    "mlp": {"model": {"type": "mlp", "hidden_sizes": [48]}, "data": {**PICTURES, "shape": [3, 16, 16]},
            "train": {**TRAIN, "optim": "adamw", "lr_scheduler_type": "cosine", "max_grad_norm": 1.0}},
    "convnet": {"model": {"type": "convnet"}, "data": PICTURES,
                "train": {**TRAIN, "momentum": 0.9, "lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": 1.7},
                          "label_smoothing_factor": 0.1}},
    "convnet of few samples": {"model": {"type": "convnet", "channels": [4, 6]}, "data": PICTURES,
                               "train": {**TRAIN, "micro_batch_size": 2, "optim": "adamw"}},
    "gpt2": {"model": {"type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 24, "dropout": 0.1},
             "data": {"type": "text", "path": "words.txt", "sequence_length": 24},
             "train": {**TRAIN, "optim": "adamw", "weight_decay": 0.1, "warmup_steps": 1, "lr_scheduler_type": "inverse_sqrt"}},
}
HASHES = {
    "mlp": "3b7fe5c6a7627b021c8002ec6ddc4b637d137ce819a3ee2388ef25b03d7a8cb1",
    "convnet": "2b0a730b086cc30c6a4ebb90a0444e8c2a35165c922d74c60748ee69e183f69a",
    "convnet of few samples": "8b46a6038fdd14baaf124459d0e4e83e480bdf4830a840334ee68b1777f859f3",
    "gpt2": "e217864a46b11cb9c538379d11c0490f40d09171ef45133873fbbfca381b492a",
}


def processor_has(flag):
    return f" {flag} " in pathlib.Path("/proc/cpuinfo").read_text().replace("\n", " ")


class OneHashTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="dtrun-one-hash-")))
        (self.folder / "words.txt").write_text(WORDS)

    def trained(self, name, environment, workers=1):
        """The hash of the job's parameters; each call has a folder of its own."""
        output = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        config = self.folder / f"{name}.json"
        config.write_text(json.dumps({**JOBS[name], "output_dir": str(output)}))
        done = subprocess.run([self.dtrun, "--nproc_per_node", str(workers), "--lanes", "1", config], cwd=self.folder,
                              env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return lines_of(output / "metrics.jsonl", "end")[0]["params_sha256"]

    def check_all(self, environment=None, workers=1):
        for name, wanted in HASHES.items():
            with self.subTest(name):
                self.assertEqual(self.trained(name, environment or {}, workers), wanted)

    dtrun = BIN / "dtrun"

    def test_every_instruction_set_of_this_processor(self):
        if processor_has("avx512bw"):
            self.check_all({"DTRUN_CPU": "avx512"})
        self.check_all({"DTRUN_CPU": "avx2"})
        self.check_all(workers=2)

    @long
    @unittest.skipUnless(QEMU, "no qemu-x86_64 (package qemu-user)")
    def test_processors_of_other_makers(self):
        """The worker alone runs in qemu: a link to dtrun with another dtrun-worker beside it."""
        for processor in ("Haswell", "EPYC"):
            with self.subTest(processor):
                place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
                shutil.copy(BIN / "dtrun", place)
                worker = place / "dtrun-worker"
                worker.write_text(f'#!/bin/sh\nexec {QEMU} -cpu {processor} "{BIN}/dtrun-worker" "$@"\n')
                worker.chmod(0o755)
                self.dtrun = place / "dtrun"
                self.check_all()

    def test_a_name_that_is_no_instruction_set_is_refused(self):
        done = subprocess.run([BIN / "dtrun-worker", "fingerprint"], input=json.dumps({**JOBS["convnet"], "output_dir": "x"}), text=True,
                              env={**os.environ, "DTRUN_CPU": "mmx"}, capture_output=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("DTRUN_CPU=mmx in the environment: expected avx512, avx2 or baseline", done.stdout + done.stderr)


if __name__ == "__main__":
    cases.run()
