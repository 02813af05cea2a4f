"""Spares of the worker kit with real agents and real PyTorch: one that waits takes the rank of a worker that dies.
spares_test.py DTRUN [names of tests]"""

import os
import signal
import sys
import time
import unittest

sys.dont_write_bytecode = True
import kit_job
from kit_job import KitJob, check_steps

DTRUN = ""
WITH_SPARE = ("--recovery", "memory", "--spares", "1")


class SparesTest(unittest.TestCase):
    def start(self, arguments=WITH_SPARE, **options):
        job = KitJob(DTRUN, arguments=arguments, steps=1000000, pause=0.02, **options)
        self.addCleanup(job.kill)
        begun = job.whole()
        self.assertIsNotNone(begun, job.errors())
        return job, begun

    def waits(self, job):
        spare = job.spare()
        self.assertIsNotNone(spare, job.errors())
        return spare

    def ends(self, job, killed=()):
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(60), 143, job.errors())
        check_steps(self, job, job.lines("end")[0]["done"], killed)

    def test_a_spare_takes_the_rank_of_a_worker_that_dies(self):
        job, (generation, pids) = self.start()
        spare = self.waits(job)
        self.assertNotIn(spare, pids.values())
        killed = time.time()
        os.kill(pids[0], signal.SIGKILL)
        after, ranks = job.whole(generation)
        self.assertEqual(ranks, {**pids, 0: spare})
        self.assertEqual(after, generation + 1)  # the others regroup once
        steps = [line["t"] for line in job.lines("step") if line["gen"] == after]
        began, ready = (next(line["time"] for line in job.events(event) if line["pid"] == spare)
                        for event in ("worker_started", "worker_ready"))
        print(f"whole again after {(min(steps) - killed) * 1e3:.0f} ms; a worker loads for {(ready - began) * 1e3:.0f} ms",
              file=sys.stderr)
        self.assertLess(min(steps) - killed, (ready - began) / 3)
        self.assertNotEqual(self.waits(job), spare)  # another one stands behind it
        self.ends(job)
        self.assertEqual([line["replaced"] for line in job.events("recovered")], [1])

    def check_killed(self, victims):
        """`victims`: of the pids by rank and the spare's, one just after the other."""
        job, (generation, pids) = self.start()
        killed = victims(pids, self.waits(job))
        for victim in killed:
            os.kill(victim, signal.SIGKILL)
            time.sleep(0.05)
        after = job.whole(generation)
        self.assertIsNotNone(after, job.errors())
        self.assertIn(pids[0], after[1].values(), job.errors())
        self.ends(job, killed)

    def test_two_workers_are_killed(self):
        self.check_killed(lambda pids, spare: (pids[2], pids[1]))

    def test_a_worker_is_killed_and_the_spare_that_takes_its_place(self):
        self.check_killed(lambda pids, spare: (pids[2], spare))

    def test_the_spare_is_killed_and_then_a_worker(self):
        self.check_killed(lambda pids, spare: (spare, pids[1]))

    def test_a_worker_dies_while_the_ranks_find_each_other(self):
        """A spare that has never met anybody then meets ranks whose last meeting broke."""
        job, (generation, pids) = self.start(arguments=(*WITH_SPARE[:-1], "2"), faults="meet:1:2")
        self.assertIsNotNone(job.spares(2), job.errors())
        os.kill(pids[0], signal.SIGKILL)
        after = job.whole(generation)
        self.assertIsNotNone(after, job.errors())
        self.assertIn(pids[2], after[1].values(), job.errors())
        self.ends(job)

    def test_a_spare_that_is_killed_disturbs_nobody(self):
        job, (generation, pids) = self.start()
        spare = self.waits(job)
        os.kill(spare, signal.SIGKILL)
        self.assertIsNotNone(job.wait_for(lambda: job.spare() not in (None, spare)), job.errors())
        self.assertIn("a spare of this node ended with signal 9 (SIGKILL); starting another", job.errors())
        self.ends(job)
        self.assertEqual({line["gen"] for line in job.lines("step")}, {generation})
        self.assertEqual({line["pid"] for line in job.lines("step")}, set(pids.values()))

    def test_a_script_that_reads_its_rank_has_no_spare_which_is_said_and_is_replaced_as_ever(self):
        job, (generation, pids) = self.start(reads_rank=1)
        self.assertIsNotNone(job.wait_for(lambda: "starting another in 1 s" in job.errors()), job.errors())
        self.assertIn("[default:spare] KeyError: 'RANK'", job.errors())
        os.kill(pids[1], signal.SIGKILL)
        self.assertIsNotNone(job.whole(generation), job.errors())
        self.ends(job)

    def test_a_spare_ends_with_the_job_at_once(self):
        job, _ = self.start()
        spare = self.waits(job)
        self.ends(job)
        told = job.events("signal_workers")[0]["time"]
        ended = {line["pid"]: line["time"] - told for line in job.events("worker_ended")}
        self.assertEqual(min(ended, key=ended.get), spare)
        self.assertLess(ended[spare], max(ended.values()) / 3)  # without torch's clean-up
        self.assertIn("exit code 75", [line["how"] for line in job.events("worker_ended") if line["pid"] == spare])

    def test_a_job_that_is_complete_ends_with_0_though_a_spare_still_loads(self):
        job = KitJob(DTRUN, arguments=WITH_SPARE, steps=20)
        self.assertEqual(job.end(), 0, job.errors())
        check_steps(self, job, 20)
        self.assertEqual(len([line for line in job.events("worker_ended") if line["rank"] == -1]), 1, job.errors())


if __name__ == "__main__":
    DTRUN = kit_job.dtrun_to_test()
    unittest.main(verbosity=2)
