"""tests/support/box, the launcher in front of each entry: what it keeps apart, how it ends, and when it runs an entry again."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import cases
from clock import eventually

BOX = sys.argv.pop(1)
BUSY = "i=0; while [ $i -lt {} ]; do i=$((i+1)); done"


def alive_with(words):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() == words:
                found.append(path)
        except OSError:
            pass
    return found


class Boxed(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir=os.getcwd())))
        self.costs = self.folder / "costs"

    def boxed(self, script, *options, timeout=60):
        done = subprocess.run([BOX, "--name", "entry", "--timeout", str(timeout), "--costs", self.costs, *options, "--", "bash", "-c", script],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)
        return done.returncode, done.stdout

    def cost(self):
        """(CPU seconds, wall seconds, inconclusive runs)"""
        name, cpu, wall, again = self.costs.read_text().split()
        self.assertEqual(name, "entry")
        return float(cpu), float(wall), int(again)


class BoxTest(Boxed):
    def test_the_exit_code_is_the_commands(self):
        self.assertEqual(self.boxed("exit 7")[0], 7)
        self.assertEqual(self.boxed("exit 77")[0], 77)
        self.assertEqual(self.boxed("kill -SEGV $$")[0], 128 + 11)
        code, said = self.boxed("exec no-such-program")
        self.assertEqual(code, 127, said)
        bad = subprocess.run([BOX, "--name", "entry", "--", "true"], capture_output=True, text=True)
        self.assertEqual(bad.returncode, 64)
        self.assertIn("no timeout", bad.stderr)

    def test_two_entries_have_the_same_port_and_file_and_see_no_process_of_each_other(self):
        script = """python3 -c 'import socket; s = socket.socket(); s.bind(("0.0.0.0", 29500)); s.listen(); import time
open("/tmp/mine", "x").close(); time.sleep(1)'
ps -e >/tmp/all
grep -c bash /tmp/all; ip -o link | wc -l"""
        def start():
            return subprocess.Popen([BOX, "--name", "entry", "--timeout", "60", "--", "bash", "-c", script], stdout=subprocess.PIPE, text=True)
        both = [start(), start()]
        for one in both:
            self.assertEqual(one.communicate()[0].split(), ["1", "1"])

    def test_nothing_of_an_entry_outlives_it(self):
        mark = f"sleep {100000 + os.getpid()}"
        code, said = self.boxed(f"setsid {mark} & echo $TMPDIR; touch $TMPDIR/left")
        self.assertEqual(code, 0, said)
        self.assertEqual(alive_with(mark), [])
        one = subprocess.Popen([BOX, "--name", "entry", "--timeout", "60", "--", "bash", "-c", f"setsid {mark} & wait"])
        self.assertTrue(eventually(lambda: alive_with(mark)))
        one.kill()  # as ctest does at its timeout
        one.wait()
        self.assertTrue(eventually(lambda: not alive_with(mark)))

    def test_ctrl_c_ends_the_entry_and_leaves_no_folder(self):
        mark = f"sleep {200000 + os.getpid()}"
        one = subprocess.Popen([BOX, "--name", "entry", "--timeout", "60", "--", "bash", "-c", mark + "; true"],
                               env={**os.environ, "TMPDIR": str(self.folder)})
        self.assertTrue(eventually(lambda: alive_with(mark)))
        one.send_signal(signal.SIGINT)
        self.assertEqual(one.wait(), 128 + signal.SIGINT)
        self.assertEqual(alive_with(mark), [])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_timeout_names_what_is_left(self):
        code, said = self.boxed("sleep 321", timeout=1)
        self.assertEqual(code, 124)
        self.assertIn("entry did not end within 1 s of fair time", said)
        self.assertIn("sleep 321", said)

    def test_what_the_entry_computed_is_kept(self):
        self.boxed(BUSY.format(200000) + "; (setsid bash -c '" + BUSY.format(200000) + "')")
        cpu, wall, again = self.cost()
        self.assertGreater(cpu, 0.2)
        self.assertLess(cpu, 30)
        self.assertGreater(wall, cpu / (os.cpu_count() + 1))
        self.assertEqual(again, 0)


@unittest.skipUnless(os.path.exists("/proc/pressure/cpu"), "needs the kernel's pressure stall information")
class VerdictTest(Boxed):
    # More that compute than there are processors, so that something is stalled all the time.
    STARVED = "".join(f"(while :; do :; done) & " for _ in range(2 * (os.cpu_count() or 1))) + "sleep 1; "

    def test_a_failure_is_inconclusive_if_a_short_time_starved(self):
        code, said = self.boxed(self.STARVED + "echo 200 >> $DTRUN_TEST_SHORT_TIMES; exit 3")
        self.assertEqual(code, 3, said)
        self.assertEqual(said.count("box: inconclusive"), 2)
        self.assertEqual(self.cost()[2], 2)

    def test_the_next_run_decides(self):
        code, said = self.boxed(self.STARVED + "echo 200 >> $DTRUN_TEST_SHORT_TIMES; mkdir first || exit 0; exit 3")
        self.assertEqual((code, said.count("box: inconclusive")), (0, 1))

    def test_a_starved_entry_without_a_short_time_fails(self):
        code, said = self.boxed(self.STARVED + "exit 3")
        self.assertEqual((code, said), (3, ""))

    def test_an_entry_that_did_not_starve_fails(self):
        code, said = self.boxed("echo 60000 >> $DTRUN_TEST_SHORT_TIMES; sleep 0.2; exit 3")
        self.assertEqual((code, said), (3, ""))

    def test_fair_time_is_less_where_something_starved(self):
        support = pathlib.Path(__file__).resolve().parents[1] / "support"
        ask = f"""python3 -B -c 'import sys, time; sys.path.insert(0, "{support}"); from clock import Stopwatch
watch = Stopwatch(); time.sleep(1); print(watch.fair() < 0.5, watch.wall() >= 1)'"""
        if os.geteuid() == 0:
            self.assertEqual(self.boxed(ask)[1], "False True\n")
        self.assertEqual(self.boxed(self.STARVED + ask)[1], "True True\n")


if __name__ == "__main__":
    cases.run()
