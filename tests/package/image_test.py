"""scripts/image's image, run by runc the way a kubelet does it: dtrun is PID 1, not root, its root is read-only, memory is
limited. Needs root, runc and busybox-static; without them it is skipped (exit code 77).

  image_test.py BUILD [unittest options…]
"""

import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

from packing import DATA, JOB, MIB, ROOT, need, params_sha256, run, why_no_packages
import cases
from cases import long
from clock import Stopwatch, eventually
from jobs import lines_of

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
CONFIG = "/usr/share/dtrun/configs/fashion_mnist_convnet.json"
NONROOT = 65532


def unpack(image, folder):
    with tarfile.open(image) as archive:
        def blob(digest):
            return archive.extractfile("blobs/" + digest.replace(":", "/")).read()

        index = json.load(archive.extractfile("index.json"))
        manifest = json.loads(blob(index["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(layer["digest"]))) as files:
                files.extractall(folder, numeric_owner=True)
        return json.loads(blob(manifest["config"]["digest"]))["config"]


def setUpModule():
    global scratch, config_of_image
    missing = [name for name in ("runc", "busybox") if shutil.which(name) is None]
    if missing or os.geteuid() != 0 or not DATA.is_dir():
        raise unittest.SkipTest(f"needs root, dataset-fashion-mnist, runc and busybox-static (scripts/setup --tests): {missing}")
    if why := why_no_packages(BUILD):
        raise unittest.SkipTest(why)
    folder = tempfile.TemporaryDirectory(prefix="dtrun-image-test-")
    unittest.addModuleCleanup(folder.cleanup)
    scratch = pathlib.Path(folder.name)
    need(ROOT / "scripts/image", "--build", BUILD, scratch / "image.tar")
    config_of_image = unpack(scratch / "image.tar", scratch / "rootfs")
    trial = Container("--version").start()
    if trial.end() != 0 and "level=error" in trial.said():  # runc's word, not dtrun's
        raise unittest.SkipTest(f"runc makes no container here: {trial.said()}")


def read(path):
    return path.read_text() if path.exists() else ""


class Container:
    """One container of the image with `words` behind its entrypoint, as a pod has it."""

    def __init__(self, *words, entrypoint=None, resources=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        self.name = self.folder.name
        self.out = self.folder / "out"
        self.message = self.folder / "message"
        self.message.touch(mode=0o666)
        self.message.chmod(0o666)
        self.out.mkdir()
        os.chown(self.out, NONROOT, NONROOT)
        need("runc", "spec", "--bundle", self.folder)
        spec = json.loads((self.folder / "config.json").read_text())
        spec["root"] = {"path": str(scratch / "rootfs"), "readonly": True}
        spec["process"] |= {"terminal": False, "user": {"uid": NONROOT, "gid": NONROOT}, "cwd": config_of_image["WorkingDir"],
                            "env": config_of_image["Env"], "noNewPrivileges": True, "capabilities": {},
                            "args": [*(entrypoint or config_of_image["Entrypoint"]), *words]}
        # A shell, which the image has not, for workers.
        spec["mounts"] += [{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}, self.bind(DATA, DATA, "ro"), self.bind(self.out, "/out", "rw"),
                           self.bind(self.message, "/dev/termination-log", "rw"),
                           self.bind(shutil.which("busybox"), "/tmp/busybox", "ro")]
        spec["linux"]["resources"] |= resources or {}
        (self.folder / "config.json").write_text(json.dumps(spec))

    @staticmethod
    def bind(source, destination, mode):
        return {"destination": str(destination), "type": "bind", "source": str(source), "options": ["rbind", mode]}

    def start(self):
        """runc passes signals on to PID 1 and ends as it does."""
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(["runc", "run", "--bundle", self.folder, self.name], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=subprocess.STDOUT)
        return self

    def end(self):
        code = self.process.wait()
        run("runc", "delete", "--force", self.name)
        return code

    def said(self):
        return (self.folder / "log").read_text()

    def wait_for(self, happened):
        found = eventually(lambda: self.process.poll() is not None or happened())
        assert found and self.process.poll() is None, self.said()

    def wait_for_words(self, words, times=1):
        self.wait_for(lambda: self.said().count(words) >= times)

    def lines(self, event):
        return lines_of(self.out / "run/metrics.jsonl", event)


class ImageTest(unittest.TestCase):
    def train(self, *more):
        return Container("--nproc_per_node", "2", CONFIG, "output_dir=/out/run", f"data.path={DATA}", *more)

    def test_it_trains_to_the_same_bytes_as_the_build(self):
        container = self.train(*JOB).start()
        self.assertEqual(container.end(), 0, container.said())
        need(BUILD / "bin/dtrun", "--standalone", "--nproc_per_node", "1", ROOT / "configs/fashion_mnist_convnet.json",
             f"output_dir={container.folder / 'built'}", *JOB)
        self.assertEqual(params_sha256(container.out / "run"), params_sha256(container.folder / "built"))
        self.assertEqual(container.message.read_text(), "")

    def test_told_to_end_it_writes_a_checkpoint_and_goes_on_from_there(self):
        container = self.train("train.max_steps=1000000").start()
        container.wait_for_words("step 1 of 1000000")
        container.process.send_signal(signal.SIGTERM)
        watch = Stopwatch()
        self.assertEqual(container.end(), 128 + signal.SIGTERM, container.said())
        self.assertLess(watch.fair(), 30)
        [saved] = (container.out / "run/checkpoints").glob("step-*")
        again = self.train(f"train.max_steps={int(saved.name[5:]) + 10}")
        shutil.copytree(container.out / "run", again.out / "run")
        for path in (again.out / "run").rglob("*"):
            os.chown(path, NONROOT, NONROOT)
        os.chown(again.out / "run", NONROOT, NONROOT)
        self.assertEqual(again.start().end(), 0, again.said())
        self.assertIn("resum", again.said())

    @long
    def test_told_to_end_in_any_phase_it_ends_in_time_and_loses_no_step(self):
        for phase, begins in (("start", lambda container: True), ("loading", lambda container: container.lines("start")),
                              ("training", lambda container: container.lines("train")),
                              ("evaluation", lambda container: len(container.lines("train")) >= 10),
                              ("checkpoint", lambda container: any((container.out / "run/checkpoints").glob("*"))),
                              ("later", lambda container: len(container.lines("eval")) >= 5)):
            with self.subTest(phase):
                container = self.train("train.max_steps=1000000", "train.logging_steps=1", "train.eval_steps=10", "train.save_steps=10").start()
                container.wait_for(lambda: begins(container))
                self.assert_ends_when_told(container)
                last = max((line["step"] for line in container.lines("train")), default=0)
                saved = [path.name for path in (container.out / "run/checkpoints").glob("step-*")]
                if last:
                    self.assertIn(f"step-{last:08}", saved, container.said())

    @long
    def test_told_to_end_while_it_waits_for_nodes_or_for_a_restart_it_ends_in_time(self):
        waits = Container("--nnodes", "2", "--rdzv_endpoint", "localhost:29400", "--insecure", "--", "/tmp/busybox", "true").start()
        waits.wait_for_words("joined 1 of 2")
        self.assert_ends_when_told(waits)
        fails = Container("--max_restarts", "20", "--", "/tmp/busybox", "sh", "-c", "echo fails; exit 3").start()
        fails.wait_for_words("fails", 2)  # the second restart waits for a second
        self.assert_ends_when_told(fails)

    @long
    def test_told_to_end_before_it_has_read_its_config_it_ends_at_once(self):
        container = Container("/out/config.json")
        os.mkfifo(container.out / "config.json")
        os.chmod(container.out / "config.json", 0o666)
        self.assert_ends_when_told(container.start(), within=10)

    def assert_ends_when_told(self, container, within=30):
        watch = Stopwatch()
        while container.process.poll() is None and not self.hears_sigterm(container):
            time.sleep(0.01)
        run("runc", "kill", container.name, "TERM")
        self.assertEqual(container.end(), 128 + signal.SIGTERM, container.said())
        self.assertLess(watch.fair(), within)

    @staticmethod
    def hears_sigterm(container):
        """The kernel drops a signal to a PID 1 that neither blocks nor handles it, so also in the moment before dtrun's code begins."""
        code, state = run("runc", "state", container.name)[:2]
        if code != 0:
            return False
        process = pathlib.Path("/proc") / str(json.loads(state)["pid"])
        if read(process / "comm") != "dtrun\n":
            return False
        masks = [line.split()[1] for line in read(process / "status").splitlines() if line.startswith(("SigBlk", "SigCgt"))]
        return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in masks)

    @long
    def test_how_a_worker_ended_is_the_exit_code_and_the_message(self):
        # Templates have $$ for $, as torchrun has it.
        for command, code, words in (("exit 3", 3, "exit code 3"), ("kill -SEGV $$$$", 128 + signal.SIGSEGV, "SIGSEGV")):
            with self.subTest(command):
                container = Container("--", "/tmp/busybox", "sh", "-c", command).start()
                self.assertEqual(container.end(), code, container.said())
                self.assertIn("rank 0", container.message.read_text())
                self.assertIn(words, container.message.read_text())

    @long
    def test_why_it_failed_is_left_for_kubectl(self):
        container = Container("--nproc_per_node", "2", CONFIG, "output_dir=/out/run", "data.path=/nowhere").start()
        self.assertEqual(container.end(), 66, container.said())
        self.assertIn("/nowhere", container.message.read_text())
        wrong = Container("--nproc_per_node", "x", CONFIG).start()
        self.assertEqual(wrong.end(), 64)
        self.assertIn("--nproc_per_node=x", wrong.message.read_text())

    @long
    def test_a_worker_that_takes_too_much_memory_is_named(self):
        container = Container("--", "/tmp/busybox", "sh", "-c", "echo took it; dd if=/dev/zero of=/dev/null bs=900M count=9",
                              resources={"memory": {"limit": 400 * MIB, "swap": 400 * MIB}})
        self.assertEqual(container.start().end(), 128 + signal.SIGKILL, container.said())
        message = container.message.read_text()
        self.assertIn("rank 0", message)
        self.assertIn("memory", message)
        self.assertLessEqual(len(message.encode()), 4096)

    @long
    def test_as_pid_1_it_leaves_no_zombies_and_ends_what_its_workers_left(self):
        orphans = "for i in 1 2 3 4 5; do (sh -c 'sleep 0.2; exit 7' &) ; done; sleep 1; "
        count = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l | sed 's/^/zombies /'; cat /proc/1/comm; (sleep 1000 &)"
        container = Container("--", "/tmp/busybox", "sh", "-c", orphans + count)
        watch = Stopwatch()
        self.assertEqual(container.start().end(), 0, container.said())
        self.assertIn("zombies 0\n", container.said())
        self.assertIn("dtrun\n", container.said())
        self.assertLess(watch.fair(), 60)

    @long
    def test_for_gpus_it_has_the_libraries_that_a_worker_opens(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        names = ["libcublasLt.so.13", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libcudnn.so.9", "libcudnn_ops.so.9",
                 "libnccl.so.2"]
        for name in names:
            (folder / name).write_text(name)
        need("env", f"DTRUN_CUDA_LIBRARY_PATH=/nowhere:{folder}", ROOT / "scripts/image", "--cuda", "--build", BUILD,
             scratch / "cuda.tar")
        config = unpack(scratch / "cuda.tar", scratch / "cuda")
        for name in names:
            self.assertEqual((scratch / "cuda/usr/lib/x86_64-linux-gnu" / name).read_text(), name)
        self.assertTrue(any((scratch / "cuda").rglob("libz.so.1")))
        self.assertIn("NVIDIA_VISIBLE_DEVICES=all", config["Env"])


if __name__ == "__main__":
    cases.run()
