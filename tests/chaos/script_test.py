"""scripts/chaos with real runs of dtrun: faults that cost nothing but time, a run that does lose something, an interrupt.
Skipped where the data set is not installed.

  script_test.py DTRUN [unittest options…]
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "tests/support")]
import cases
import chaos_hosts
from cases import long
from clock import soon
from jobs import wait_for

DTRUN = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


class ScriptTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="dtrun-chaos-test-")))

    def start(self, *options, dtrun=DTRUN):
        """All that it writes is below self.folder."""
        return subprocess.Popen([ROOT / "scripts/chaos", "--dtrun", dtrun, *options], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={"TMPDIR": str(self.folder), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})

    def run_script(self, *options, dtrun=DTRUN):
        """Exit code, the objects of standard output, standard error."""
        with self.start("--json", *options, dtrun=dtrun) as program:
            try:
                out, errors = program.communicate()
            finally:
                program.terminate()
        return program.returncode, [json.loads(line) for line in out.splitlines()], errors

    @long
    def test_six_killed_workers_cost_time_and_nothing_else(self):
        code, events, errors = self.run_script("--faults", "6", "--seed", "1", "--every", "0.6", "--save_steps", "20", "--steps", "2500")
        self.assertEqual(code, 0, errors)
        quiet, *faults, end = events
        self.assertEqual([event["event"] for event in events], ["quiet"] + 6 * ["fault"] + ["end"])
        self.assertEqual({fault["kind"] for fault in faults}, {"worker"})
        self.assertEqual(len({pid for fault in faults for pid in fault["pids"]}), 6, "each hit another process")
        for fault in faults:
            self.assertGreater(fault["ms_to_next_step"], 0)
        self.assertEqual(end["params_sha256"], quiet["params_sha256"])
        self.assertEqual((end["leftovers"], end["problems"]), ([], []))
        self.assertEqual(list(self.folder.iterdir()), [], "it leaves nothing behind")

    def assert_all_taken_in(self, faults, *options):
        """Two seconds of silence give a node up, so that it has to be taken in again."""
        code, events, errors = self.run_script("--faults", str(faults), "--every", "0.75", "--longest", "8", "--keep_alive", str(soon(2)),
                                               "--nodes", "3", "--min_nodes", "3", "--steps", "2800", *options)
        self.assertEqual(code, 0, json.dumps(events[-1:]) + errors)
        quiet, *struck, end = events
        self.assertEqual(len(struck), faults)
        self.assertTrue(any(fault["seconds_out_of_touch"] > 3 for fault in struck), "one was given up")
        self.assertEqual(end["params_sha256"], quiet["params_sha256"])
        return struck

    @long
    def test_agents_and_a_store_that_stand_still_are_waited_for_and_taken_in(self):
        self.assert_all_taken_in(3, "--kinds", "freeze", "--seed", "1")

    @long
    @unittest.skipIf(chaos_hosts.why_none(), "network namespaces cannot be made here")
    def test_nodes_whose_cable_is_cut_are_waited_for_and_taken_in_whoever_leads(self):
        self.assert_all_taken_in(3, "--kinds", "cut,freeze", "--coordinator", "agents", "--seed", "3")

    @long
    @unittest.skipIf(chaos_hosts.why_none(), "network namespaces cannot be made here")
    def test_a_launcher_that_stands_still_is_waited_for_like_the_agents_that_it_started(self):
        struck = self.assert_all_taken_in(6, "--kinds", "freeze,worker", "--launcher", "--steps", "4000", "--seed", "7")
        self.assertEqual({fault["way"] for fault in struck}, {"agent", "coordinator", "launcher", ""})

    @long
    def test_a_run_that_ends_with_other_parameters_is_not_well(self):
        other = self.folder / "dtrun"
        other.write_text(f'#!/bin/sh\ncase "$*" in */fire/*) exec "{DTRUN}" "$@" train.seed=43 ;; *) exec "{DTRUN}" "$@" ;; esac\n')
        other.chmod(0o755)
        code, events, errors = self.run_script("--faults", "1", "--seed", "1", "--every", "0.3", "--steps", "150",
                                               dtrun=other)
        self.assertEqual(code, 1, errors)
        quiet, end = events[0], events[-1]
        self.assertFalse(end["ok"])
        self.assertNotEqual(end["params_sha256"], quiet["params_sha256"])
        self.assertIn(f"that of the quiet run is {quiet['params_sha256']}", end["problems"][-1])
        self.assertIn("what the processes wrote is in", errors)

    @long
    def test_faults_that_came_too_late_are_told(self):
        code, events, errors = self.run_script("--faults", "3", "--every", "60", "--steps", "60")
        self.assertEqual(code, 1, errors)
        self.assertEqual(events[-1]["problems"],
                         ["the job ended before 3 of 3 faults: give it more --steps than 60"])

    @long
    def test_an_interrupt_ends_all_and_says_so(self):
        with self.start("--faults", "3", "--every", "1", "--steps", "100000") as program:
            try:
                wait_for(lambda: program.poll() is not None or list(self.folder.glob("dtrun-chaos-*/quiet/out/metrics.jsonl")))
                self.assertIsNone(program.poll(), "it ended before the job began")
                program.send_signal(signal.SIGINT)
                _, errors = program.communicate()
            finally:
                program.terminate()
        self.assertEqual(program.returncode, 130, errors)
        self.assertIn("interrupted; all that it started has ended", errors)
        self.assertEqual(list(self.folder.iterdir()), [])
        left = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(self.folder) in text_of(path)]
        self.assertEqual(left, [])

    def test_a_wrong_command_line_is_told_with_the_way_out(self):
        for options, words in ((["--kinds", "workr"], "'workr' is no kind of fault; there are worker, "),
                               (["--kinds", "agent", "--nodes", "1"], "give --nodes 2 or more"),
                               (["--kinds", "cut", "--nodes", "2", "--min_nodes", "3"], "--min_nodes 3 of --nodes 2"),
                               (["--kinds", "cut", "--coordinator", "agents"], "that takes --nodes 3 or more"),
                               (["--launcher", "--kinds", "agent,leave,freeze,store"], "takes --nodes 2 or more, and not --kinds leave,store"),
                               (["--launcher", "--kinds", "agent", "--min_nodes", "2"], "and not --kinds agent"),
                               (["--launcher", "--kinds", "freeze", "--nodes", "1"], "give --nodes 2 or more"),
                               (["--launcher", "--kinds", "freeze", "--longest", "51"], "with --launcher 50 at most"),
                               (["--kinds", "workers", "--nproc_per_node", "1"], "give --nproc_per_node 2 or more"),
                               (["--faults", "0"], "0 is less than 1")):
            code, _, errors = self.run_script(*options)
            self.assertEqual(code, 2)
            self.assertIn(words, errors)

    def test_what_is_missing_is_told_with_the_way_out(self):
        code, _, errors = self.run_script("--config", "/nonexistent.json")
        self.assertEqual(code, 1)
        self.assertIn("cannot read the config /nonexistent.json", errors)
        code, _, errors = self.run_script(dtrun="/nonexistent")
        self.assertEqual(code, 1)
        self.assertIn("there is no program /nonexistent; leave out --no-build, or name one with --dtrun", errors)


def text_of(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    if not DATA.exists():
        cases.skip_all("the package dataset-fashion-mnist is not installed")
    cases.run()
