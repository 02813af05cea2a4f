"""Units: ranks that hold one state together, under real agents and real PyTorch. One dies and its unit with it, and the other
units go on with what they hold. By hand-made shards, which every torch can do, and by FSDP2. units_test.py DTRUN [names of tests]"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import kit_job
from kit_job import KitJob, check_steps
import cases
from cases import long
from clock import soon
from jobs import lines_of, status

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIT = ROOT / "worker/kit/python"
sys.path.insert(0, str(KIT / "dtrun"))  # the module alone: the package would need no torch either, but its neighbours do
import _agreement

DTRUN = ""
STEPS = 40
SAMPLES = 1024
GLOBAL_BATCH_SIZE = 48


def why_no_fsdp():
    probe = subprocess.run([kit_job.python_with_torch(), "-c", "from torch.distributed.fsdp import fully_shard"], capture_output=True)
    return "" if probe.returncode == 0 else f"the torch of {kit_job.python_with_torch()} has no FSDP2 (DTRUN_TEST_PYTHON names another Python)"


class AgreementTest(unittest.TestCase):
    def test_the_furthest_send_to_those_behind_and_share_the_work(self):
        self.assertEqual(_agreement.transfers([7, 8, 7, 8, _agreement.NOTHING], [0] * 5), (8, [(1, 0), (3, 2), (1, 4)]))
        self.assertEqual(_agreement.transfers([8, 8], [0, 0]), (8, []))

    def test_nobody_has_trained_and_all_take_the_first_ones_initial_values(self):
        self.assertEqual(_agreement.transfers([_agreement.NOTHING] * 3, [0] * 3), (0, [(0, 1), (0, 2)]))

    def test_what_was_loaded_counts_where_nobody_holds_the_state_and_only_there(self):
        nothing = _agreement.NOTHING
        self.assertEqual(_agreement.transfers([nothing] * 3, [20, 40, 40]), (40, [(1, 0)]))
        self.assertEqual(_agreement.transfers([nothing, 30], [40, 0]), (30, [(1, 0)]))
        self.assertEqual(_agreement.transfers([nothing, 0], [40, 0]), (0, [(1, 0)]))

    def test_a_torn_state_is_healed_by_a_whole_one_or_by_nobody(self):
        self.assertEqual(_agreement.transfers([_agreement.TORN, 8], [0, 0]), (8, [(1, 0)]))
        self.assertEqual(_agreement.transfers([_agreement.TORN, _agreement.NOTHING], [0, 7])[0], _agreement.TORN)

    def test_a_unit_holds_what_all_of_its_ranks_hold(self):
        nothing, torn = _agreement.NOTHING, _agreement.TORN
        self.assertEqual(_agreement.held_by_units([8, 7, nothing, nothing], [8, 8, 8, nothing]), [8, torn, torn, nothing])


class SameStepTest(unittest.TestCase):
    """What each rank says of its part in step 40, and who is at fault."""
    updated = _agreement.Did(40, True, True, 3)   # as in the steps before
    skipped = _agreement.Did(40, True, False, 0)  # `continue` before the forward pass
    waits = _agreement.Did(40, False, False, 1)   # in its first all-reduce

    def at_fault(self, *dids, usual=updated):
        return _agreement.at_fault(list(dids), usual)

    def test_all_do_the_same(self):
        for did in (self.updated, self.skipped, self.waits):
            self.assertEqual(self.at_fault(did, did), [])
        self.assertEqual(self.at_fault(self.updated, self.updated._replace(collectives=7)), [])  # it sent messages

    def test_the_fewer_are_at_fault(self):
        self.assertEqual(self.at_fault(self.updated, self.skipped, self.updated, usual=None), [1])
        self.assertEqual(self.at_fault(self.waits, self.skipped, self.waits, usual=None), [1])
        self.assertEqual(self.at_fault(self.updated, self.waits._replace(collectives=4), self.updated, usual=None), [1])

    def test_of_two_it_is_the_one_that_does_not_do_as_before(self):
        more = self.waits._replace(collectives=4)  # it is in a barrier that the other one does not know
        self.assertEqual(self.at_fault(self.waits, self.skipped), [1])
        self.assertEqual(self.at_fault(self.skipped, self.waits), [0])
        self.assertEqual(self.at_fault(more, self.updated), [0])
        self.assertEqual(self.at_fault(self.updated, self.skipped), [1])

    def test_of_two_in_their_first_step_it_is_the_one_that_did_less(self):
        self.assertEqual(self.at_fault(self.waits, self.skipped, usual=None), [1])
        self.assertEqual(self.at_fault(self.skipped, self.updated, usual=None), [0])

    def test_a_rank_waits_in_vain_once_another_has_ended_the_step_with_fewer_collectives(self):
        self.assertTrue(_agreement.waits_in_vain(self.waits, [self.waits, self.skipped]))
        self.assertFalse(_agreement.waits_in_vain(self.waits, [self.waits, self.updated]))
        self.assertFalse(_agreement.waits_in_vain(self.waits, [self.waits, self.waits]))
        self.assertFalse(_agreement.waits_in_vain(self.skipped, [self.waits, self.skipped]))
        uncounted = self.waits._replace(collectives=-1)  # by this torch
        self.assertFalse(_agreement.waits_in_vain(uncounted, [uncounted, self.skipped._replace(collectives=-1)]))

    def test_people_are_told_who_did_what(self):
        text = _agreement.difference([self.updated, self.skipped], [1])
        self.assertIn("in step 40: rank 1 has left its block without optimizer.step() after 0 collectives, rank 0 updates "
                      "after 3 collectives", text)


class UnitsTest(unittest.TestCase):
    """Two units of two."""
    fsdp = 0

    def start(self, **options):
        job = KitJob(DTRUN, **{"world": 4, "unit": 2, "fsdp": self.fsdp, "pause": 0.02, **options})
        self.addCleanup(job.kill)
        return job

    def run_job(self, code=0, **options):
        job = self.start(steps=STEPS, whole=4, **options)
        self.assertEqual(job.end(), code, job.errors())
        return job

    def check(self, job, total=STEPS):
        """Besides what check_steps looks at: each step has its samples once."""
        check_steps(self, job, total)
        of_step = {}
        for line in job.lines("step"):
            of_step.setdefault(line["step"], []).append(line)
        epoch = -(-SAMPLES // GLOBAL_BATCH_SIZE)
        for step, lines in of_step.items():
            self.assertEqual(len({line["gen"] for line in lines}), 1, f"step {step} was done by two generations")
            samples = [sample for line in lines for sample in line["samples"]]
            self.assertEqual(len(samples), len(set(samples)), f"step {step}")
            if len(lines) == lines[0]["world"] and (step + 1) % epoch != 0:
                self.assertEqual(len(samples), GLOBAL_BATCH_SIZE, f"step {step}")

    def units_of(self, job):
        """Generations by unit, which is the set of its pids."""
        pids, units = {}, {}
        for line in job.lines("step"):
            pids.setdefault((line["gen"], line["rank"] // 2), set()).add(line["pid"])
        for (generation, _), unit in pids.items():
            units.setdefault(frozenset(unit), set()).add(generation)
        return units

    def check_killed(self, **options):
        job = self.run_job(**options)
        self.check(job)
        units = self.units_of(job)
        self.assertEqual(sorted(map(len, units)), [2, 2, 2], job.errors())  # nobody changed its unit
        self.assertEqual(len([unit for unit, generations in units.items() if len(generations) > 1]), 1, job.errors())
        self.assertEqual(len(job.lines("loaded")), 6, job.errors())
        self.assertIn("ending 1 worker whose unit is not whole any more", job.errors())

    def test_a_rank_dies_in_the_forward_pass(self):
        self.check_killed(faults="forward:1:9")

    @long
    def test_a_rank_dies_while_its_twin_is_in_the_average(self):
        self.check_killed(faults="average:2:9")

    @long
    def test_a_rank_dies_after_its_update(self):
        self.check_killed(faults="update:3:9")

    def test_a_rank_dies_while_a_unit_is_taken_in(self):
        job = self.run_job(faults="forward:0:9,regroup:1:3")
        self.check(job)

    @long
    def test_one_of_each_unit_dies_and_all_begin_again(self):
        job = self.run_job(faults="forward:0:9,forward:3:9")
        check_steps(self, job, STEPS)
        self.assertIn("no unit that holds a state is left on this node", job.errors())
        self.assertEqual({len(generations) for generations in self.units_of(job).values()}, {1}, job.errors())
        self.assertEqual(len(job.lines("loaded")), 8, job.errors())

    @long
    def test_kills_at_random(self):
        job = self.start(steps=10 ** 6)
        kills = job.kill_often(4)
        self.assertEqual(len(kills), 4, job.errors())
        generation, _ = job.whole(kills[-1][1])
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(60), 143, job.errors())
        self.check(job, job.lines("end")[0]["done"])
        self.assertEqual(len(job.lines("end")), 4, job.errors())
        units = self.units_of(job)
        for _, at in kills:
            before, after = ({unit for unit, generations in units.items() if which in generations}
                             for which in (at, min(line["gen"] for line in job.lines("step") if line["gen"] > at)))
            self.assertEqual((len(before), len(after), len(before & after)), (2, 1, 1), job.errors())

    def test_told_to_end_all_end_after_the_same_step(self):
        job = self.start(steps=10 ** 6, faults="lag:1:40")
        self.assertTrue(job.wait_for(lambda: job.lines("lagging")), job.errors())
        job.process.send_signal(signal.SIGTERM)  # the others are in a step that this rank does not begin for a while
        self.assertEqual(job.end(60), 143, job.errors())
        ends = job.lines("end")
        self.assertEqual((len(ends), len({line["done"] for line in ends}), {line["stopping"] for line in ends}), (4, 1, {True}))
        self.check(job, ends[0]["done"])

    @long
    def test_the_end_is_that_of_the_undisturbed_run(self):
        quiet = self.run_job(min=4).lines("end")
        job = self.run_job(min=4, faults="forward:0:5,average:3:12,update:1:20")
        self.check(job)
        ends = [{(line["place"], line["params"], line["moments"]) for line in lines} for lines in (quiet, job.lines("end"))]
        self.assertEqual(ends[0], ends[1])


@long
class FsdpTest(UnitsTest):
    fsdp = 1

    @classmethod
    def setUpClass(cls):
        if why := why_no_fsdp():
            raise unittest.SkipTest(why)

    def test_the_example_of_the_docs(self):
        """Its text is what runs; a rank is killed."""
        text = (ROOT / "docs/worker-kit.md").read_text()
        script = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "fully_shard" in block)
        self.assertLessEqual(len(script.splitlines()), 25)
        folder = kit_job.new_folder()
        (folder / "train.py").write_text(script)
        os.environ["PYTHONPATH"] = str(KIT)
        job = KitJob(DTRUN, world=4, program=[str(folder / "train.py")], arguments=("--recovery", "memory", "--rdzv_id", folder.name))
        self.addCleanup(job.kill)
        self.assertTrue(job.wait_for(lambda: status(DTRUN, folder.name).get("progress", {}).get("step")), job.errors())
        killed = random.choice(job.events("place_worker"))
        os.kill(killed["pid"], signal.SIGKILL)
        self.assertEqual(job.end(), 0, job.errors())
        self.assertIn("after 2000 steps", job.errors())
        others = {line["pid"] for line in job.events("place_worker") if line["generation"] == 1 and line["rank"] // 2 != killed["rank"] // 2}
        self.assertEqual({line["pid"] for line in job.events("place_worker") if line["generation"] == 2}, others, job.errors())


@long
class RulesTest(unittest.TestCase):
    """What a script is told, and the same script elsewhere. By hand-made shards."""

    def run_job(self, code, **options):
        job = KitJob(DTRUN, **{"world": 4, "unit": 2, "steps": 8, **options})
        self.addCleanup(job.kill)
        self.assertEqual(job.end(), code, job.errors())
        return job

    def test_a_unit_that_would_be_split_is_refused(self):
        job = self.run_job(1, unit=3, restarts=0)
        self.assertIn("dtrun.start(unit=3): --nproc_per_node 4 is no multiple of it", job.errors())

    def test_who_forgets_to_average_is_told(self):
        job = self.run_job(1, forgetful=1, restarts=0)
        self.assertIn("a step calls job.average(model.parameters()) once", job.errors())

    def test_a_unit_that_hangs_is_found_by_its_rank(self):
        job = self.run_job(0, steps=STEPS, whole=4, pause=0.05, faults="asleep:1:9",
                           arguments=("--recovery", "memory", "--heartbeat_timeout", str(soon(4))))
        check_steps(self, job, STEPS)
        self.assertEqual([line["rank"] for line in job.events("hang")], [1], job.errors())

    def test_the_same_script_under_torchrun_and_without_recovery(self):
        elastic = self.run_job(0)
        plain = self.run_job(0, arguments=())
        torchrun = self.launched(*kit_job.torchrun(4))
        ends = [{(line["rank"], line["place"], line["params"], line["moments"]) for line in lines}
                for lines in (elastic.lines("end"), plain.lines("end"), torchrun)]
        self.assertEqual(len(ends[0]), 4)
        self.assertEqual(ends[0], ends[1])
        self.assertEqual(ends[0], ends[2])
        self.assertEqual([(line["done"], line["place"]) for line in self.launched()], [(8, 0)])  # plain python

    def launched(self, *launcher):
        """The ends of train.py's processes."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.jsonl"
            subprocess.run([kit_job.python_with_torch(), *launcher, str(kit_job.TRAIN)], check=True,
                           env={**os.environ, "KIT_OUT": str(out), "KIT_STEPS": "8", "KIT_UNIT": "2", "OMP_NUM_THREADS": "1"})
            return lines_of(out, "end")


if __name__ == "__main__":
    DTRUN = kit_job.dtrun_to_test()
    cases.run()
