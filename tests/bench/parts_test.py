"""scripts/bench where something goes wrong: what fails says so in the table and in the JSON, everything else is measured.

  parts_test.py DTRUN [unittest options…]
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path[:0] = [str(SCRIPTS / "lib"), str(SCRIPTS.parent / "tests/support")]
import bench_common
import bench_processes
import cases
from clock import Stopwatch
from jobs import exit_code, wait_for

DTRUN = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None


def processes_in(folder):
    """Command lines of what runs there."""
    for path in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and os.readlink(path / "cwd") == str(folder):
                yield (path / "cmdline").read_text()


class Bench:
    """A copy of scripts/bench in a folder of its own, in which all that it starts runs. build/release/bin/dtrun is there
    a shell script of the lines `dtrun`."""

    def __init__(self, dtrun):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="dtrun-bench-test-"))
        (self.root / "scripts").mkdir()
        shutil.copy2(SCRIPTS / "bench", self.root / "scripts")
        shutil.copytree(SCRIPTS / "lib", self.root / "scripts/lib")
        shutil.copytree(SCRIPTS.parent / "configs", self.root / "configs")
        program = self.root / "build/release/bin/dtrun"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{dtrun}\n")
        program.chmod(0o755)
        self.json = self.root / "numbers.json"

    def start(self, *options):
        return subprocess.Popen([self.root / "scripts/bench", "--no-build", "--quick", "--json", self.json, *options],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *options):
        """Exit code, table and numbers."""
        with self.start(*options) as program:
            try:
                table, notes = program.communicate()
            finally:
                program.terminate()
        return program.returncode, table, self.numbers(notes)

    def numbers(self, notes):
        if not self.json.exists():
            raise AssertionError(f"no JSON was written:\n{notes}")
        return json.loads(self.json.read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root)


class PartsTest(unittest.TestCase):
    def check_row(self, table, what, value):
        self.assertRegex(table, re.compile(rf"^  +{re.escape(what)} +{value}", re.MULTILINE))

    def test_all_goes_well(self):
        with Bench(f'exec "{DTRUN}" "$@"') as bench:
            code, table, numbers = bench.run("--only", "launch")
        self.assertEqual(code, 0, table)
        self.assertNotIn("failed", table)
        self.assertFalse(bench_common.any_failed(numbers))
        self.check_row(table, "dtrun --version", r"[0-9.]+ ms")

    def test_one_measurement_fails_and_the_others_are_made(self):
        with Bench(f'[ "$1" != --version ] || {{ echo out of order; exit 3; }}\nexec "{DTRUN}" "$@"') as bench:
            code, table, numbers = bench.run("--only", "launch")
        self.assertEqual(code, 1, table)
        self.check_row(table, "dtrun --version", "failed: exit code 3$")
        self.check_row(table, "dtrun --standalone --nproc_per_node 2 -- /bin/true", r"[0-9.]+ ms")
        self.check_row(table, "agent's resident memory, 2 workers running", r"[0-9.]+ MiB")
        launch = numbers["launch"]
        self.assertEqual(set(launch["dtrun_version_ms"]), {"error", "output"})
        self.assertIn("out of order", launch["dtrun_version_ms"]["output"])
        self.assertGreater(launch["dtrun_true_ms"]["median"], 0)
        self.assertGreater(launch["agent"]["rss_mb"], 0)

    def test_a_part_that_fails_as_a_whole_costs_no_other_part(self):
        with Bench(f'exec "{DTRUN}" "$@"') as bench:
            broken = bench.root / "scripts/lib/bench_peer.py"
            broken.write_text(broken.read_text().replace("    results[\"dtrun\"] = {}\n", "    raise KeyError('gone')\n"))
            code, table, numbers = bench.run("--only", "peer", "--only", "launch")
        self.assertEqual(code, 1, table)
        self.check_row(table, "peer", "failed: KeyError: 'gone'$")
        self.check_row(table, "dtrun --version", r"[0-9.]+ ms")
        self.assertEqual(set(numbers["peer"]), {"error", "output"})
        self.assertGreater(numbers["launch"]["agent"]["rss_mb"], 0)

    def test_without_a_peer_and_with_a_launcher_that_dies_each_row_says_so(self):
        with Bench("exit 3") as bench:
            watch = Stopwatch()
            code, table, numbers = bench.run("--only", "peer", "--python", "/nonexistent/python")
            self.assertLess(watch.fair(), 30, "it waited for a launcher that had ended")
        self.assertEqual(code, 1, table)
        self.check_row(table, "torchrun", "failed: no Python here has PyTorch")
        self.check_row(table, "/bin/true on 2 workers", "failed: exit code 3$")
        self.check_row(table, "resident memory of an agent", "failed: exit code 3 before 2 workers ran$")
        self.check_row(table, "a worker's SIGKILL to its replacement's first line",
                       "failed: no worker of a world of 2 came up before the launcher ended$")
        self.check_row(table, "a node's death until the survivor goes on", "failed: exit code 3 before it listened")
        self.assertEqual({key for key, value in numbers["peer"]["dtrun"].items() if "error" in value},
                         {"true_2_ms", "true_8_ms", "agent", "restart_ms", "survivor_ms"})
        self.assertIn("error", numbers["peer"]["torchrun"])

    def test_without_hosts_to_launch_on_each_row_says_so(self):
        with Bench("exit 0") as bench:
            code, table, numbers = bench.run("--only", "ssh")
        self.assertEqual(code, 1)
        self.check_row(table, "one ssh HOST true, 8 hosts there", "failed: ")
        self.check_row(table, "left after SIGKILL: pdsh", "failed: ")
        self.assertIn("ssh_lab", numbers["ssh"]["launch"]["1"]["error"])

    def test_a_recovery_that_cannot_be_measured_says_what_the_job_said(self):
        with Bench("echo out of order; exit 3") as bench:
            code, table, numbers = bench.run("--only", "recovery", "--python", "/nonexistent/python")
        self.assertEqual(code, 1, table)
        self.check_row(table, "torchrun", "failed: no Python here has PyTorch")
        for what in ("a worker's SIGKILL to the next step", "goodput, a worker killed every 1 s",
                     "goodput, a worker killed every 5 s"):
            self.check_row(table, what, "failed: even without faults the job does not run: the agent of node 0: exit code 3")
        self.check_row(table, "a node's SIGKILL to the others' next step", "failed: the store did not come up")
        self.assertIn("out of order", numbers["recovery"]["dtrun"]["often"]["output"])

    def test_a_program_without_an_end_is_killed_with_all_that_it_started(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        watch = Stopwatch()
        with self.assertRaisesRegex(bench_common.BenchError, "^no end within 0.5 s$"):
            bench_processes.run(["sh", "-c", f"trap '' TERM; cd {folder}; sleep 600 & sleep 600"], limit_s=0.5)
        self.assertLess(watch.fair(), 30)
        wait_for(lambda: not list(processes_in(folder)))

    def test_an_interrupt_keeps_what_was_measured_and_leaves_no_process(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number), Bench(f'exec "{DTRUN}" "$@"') as bench, bench.start("--only", "launch") as program:
                while "idle workers" not in program.stderr.readline():
                    self.assertIsNone(program.poll())
                wait_for(lambda: any(line.startswith("sleep") for line in processes_in(bench.root)))
                program.send_signal(number)
                table, notes = program.communicate()
                self.assertEqual(program.returncode, 130, notes)
                self.check_row(table, "dtrun --version", r"[0-9.]+ ms")
                self.check_row(table, "agent's memory and CPU time", "not measured$")
                numbers = bench.numbers(notes)
                self.assertTrue(numbers["interrupted"])
                self.assertGreater(numbers["launch"]["dtrun_version_ms"]["median"], 0)
                self.assertNotIn("agent", numbers["launch"])
                wait_for(lambda: not list(processes_in(bench.root)))

    def test_workers_meet_where_the_agents_hold_master_port_and_notice_a_death(self):
        with socket.create_server(("127.0.0.1", 0)) as agents_store:
            environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(agents_store.getsockname()[1]),
                           "TORCHELASTIC_RUN_ID": f"parts-test-{os.getpid()}", "WORLD_SIZE": "2"}
            workers = [subprocess.Popen([sys.executable, SCRIPTS / "lib/bench_peer_worker.py"], stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, **environment, "RANK": rank}) for rank in "01"]
            with workers[0], workers[1]:
                try:
                    self.assertEqual([worker.stdout.readline() for worker in workers],
                                     ["up rank=0 world=2\n", "up rank=1 world=2\n"])
                    workers[1].kill()
                    self.assertEqual(exit_code(workers[0]), 1)
                finally:
                    for worker in workers:
                        worker.kill()


if __name__ == "__main__":
    cases.run()
