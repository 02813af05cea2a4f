"""The worker kit with real agents and real PyTorch: workers die at each point of a step, and their peers go on with what they
hold. kit_test.py DTRUN [names of tests]"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.dont_write_bytecode = True

import kit_job
from kit_job import KitJob, check_steps
import cases
import chaos_hosts
from cases import long
from clock import soon
from jobs import exit_code, lines_of

DTRUN = ""
STEPS = 40


def impatient():
    """A node that is out of touch is given up after 2 s."""
    soon(2)
    return "--recovery", "memory", "--rdzv_conf", "keep_alive_interval=1,keep_alive_max_attempt=2"


def heartbeat_timeout(seconds):
    return "--recovery", "memory", "--heartbeat_timeout", str(soon(seconds))


class KitTest(unittest.TestCase):
    def start_job(self, **options):
        job = KitJob(DTRUN, **options)
        self.addCleanup(job.kill)
        return job

    def run_job(self, code=0, world=3, **options):
        """Of STEPS steps, the last of which are done by all."""
        job = self.start_job(**{"steps": STEPS, "world": world, "whole": world, **options})
        self.assertEqual(job.end(), code, job.errors())
        return job

    def survivors_of(self, job):
        """Processes that did steps in more than one generation."""
        generations = {}
        for line in job.lines("step"):
            generations.setdefault(line["pid"], set()).add(line["gen"])
        return [pid for pid, seen in generations.items() if len(seen) > 1]

    def check_killed(self, **options):
        job = self.run_job(**options)
        check_steps(self, job, STEPS)
        self.assertEqual(len(self.survivors_of(job)), job.world - 1, job.errors())
        self.assertEqual(len(job.lines("loaded")), job.world + 1, job.errors())

    def test_a_rank_dies_in_the_forward_pass(self):
        self.check_killed(faults="forward:0:9")

    @long
    def test_a_rank_dies_in_the_all_reduce(self):
        self.check_killed(faults="reduce:1:9")

    def test_a_rank_dies_after_its_update(self):
        self.check_killed(faults="update:2:9")

    @long
    def test_a_rank_dies_while_its_peers_average_the_gradients_of_a_bare_model(self):
        self.check_killed(faults="average:1:9", bare=1)

    @long
    def test_a_rank_dies_in_the_first_step_and_another_in_the_last(self):
        job = self.run_job(faults=f"begin:1:0,update:0:{STEPS - 1}")
        check_steps(self, job, STEPS)

    @long
    def test_a_peer_that_is_a_step_ahead_sends_its_state(self):
        job = self.run_job(faults="skew:1:9,update:2:9")
        check_steps(self, job, STEPS)
        self.assertEqual(len(self.survivors_of(job)), 2)

    def replaced_while_held(self, step):
        """A job of two: rank 1 dies, its replacement loads the checkpoint of step 10, and waits for a place while rank 0, that went on,
        is held in this step. Rank 0's process, and that of the replacement."""
        job = self.start_job(steps=STEPS, world=2, every=5, faults=f"forward:1:9,hold:0:12,hold:0:{step}")
        newest = job.wait_for(lambda: len(job.lines("loaded")) == 3 and job.lines("loaded")[-1])
        self.assertTrue(newest and newest["start"] == 10, job.errors())
        (job.scratch / "once" / "go-12").touch()
        self.assertTrue(job.wait_for(lambda: len(job.lines("holds")) == 2), job.errors())
        (job.scratch / "once" / "late").touch()
        ready = job.wait_for(lambda: [line for line in job.events("worker_ready") if line["pid"] == newest["pid"]])
        self.assertTrue(ready, job.errors())
        self.assertEqual(ready[0]["step"], -1)  # what it has loaded is no state of the job
        return job, job.lines("holds")[0]["pid"], newest["pid"]

    def test_who_waits_for_a_place_as_the_others_finish_ends_with_0_and_not_behind_the_loop(self):
        job, held, newest = self.replaced_while_held(STEPS - 1)
        (job.scratch / "once" / f"go-{STEPS - 1}").touch()
        self.assertEqual(job.end(), 0, job.errors())
        self.assertEqual([(line["pid"], line["rank"], line["done"]) for line in job.lines("end")], [(held, 0, STEPS)], job.errors())
        ended = {line["pid"]: line["how"] for line in job.events("worker_ended")}
        self.assertEqual(ended[newest], "exit code 0", job.errors())

    @long
    def test_who_waits_for_a_place_as_the_job_is_told_to_end_ends_with_0_and_not_behind_the_loop(self):
        for stop, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            job, held, newest = self.replaced_while_held(20)
            job.process.send_signal(stop)
            ended = job.wait_for(lambda: {line["pid"]: line["how"] for line in job.events("worker_ended")}.get(newest))
            self.assertEqual(ended, "exit code 0", job.errors())
            (job.scratch / "once" / "go-20").touch()
            self.assertEqual(job.end(), code, job.errors())
            self.assertEqual([(line["pid"], line["rank"], line["done"]) for line in job.lines("end")], [(held, 0, 21)], job.errors())

    def test_as_the_last_one_that_holds_the_state_dies_who_loaded_before_loads_again(self):
        job, held, newest = self.replaced_while_held(20)
        (job.scratch / "once" / "go-20").touch()  # of this step later
        os.kill(held, signal.SIGKILL)
        self.assertEqual(job.end(), 0, job.errors())
        self.assertEqual({line["done"] for line in job.lines("end")}, {STEPS}, job.errors())
        self.assertEqual(len({line["params"] for line in job.lines("end")}), 1)
        loaded = [(line["start"], line["pid"]) for line in job.lines("loaded")]
        self.assertEqual([start for start, _ in loaded], [0, 0, 10, 20, 20], job.errors())
        self.assertNotIn(newest, {line["pid"] for line in job.lines("step")})
        # As far as it had said.
        self.assertRegex(job.errors(), "no worker has the state of step (1[2-9]|20) any more; all begin again from what the script loads")
        self.assertIn("all begin at step 20, from what the script has loaded", job.errors())

    def check_leaves(self, fault, says, step=9, world=2):
        """A rank that does something else than its peers is named, and nobody goes on with what it did."""
        job = self.start_job(steps=STEPS, world=world, faults=f"{fault}:1:{step}", restarts=3)
        self.assertEqual(job.end(), 1, job.errors())
        self.assertRegex(job.errors(), rf"dtrun: [^\n]*rank 1[^\n]*exit code 1")
        self.assertIn(says, job.errors())
        self.assertNotIn("exit code 76", job.errors())
        self.assertNotIn("hang", job.errors())
        self.assertNotIn("restart 1 of 3", job.errors())
        self.assertEqual(job.lines("end"), [], job.errors())
        return job

    def test_a_rank_that_exits_in_a_step_is_named_and_its_peers_do_not_finish_without_it(self):
        self.check_leaves("exit", "rank 1 left the loop in step 9: sys.exit(0)")

    def test_a_rank_that_skips_a_step_is_named_before_its_peers_use_its_gradients(self):
        for world in (2, 3):
            job = self.check_leaves("skip", "in step 9: rank 1 has left its block without optimizer.step() after 0 collectives",
                                    world=world)
            self.assertEqual(max(line["step"] for line in job.lines("step")), 8)

    @long
    def test_ranks_that_leave_repeat_or_never_begin_a_step_are_named(self):
        for fault, says in (("break", "rank 1 left the loop after step 9 of 40; a loop ends on all ranks together"),
                            ("quit", "ended with 0 while its peers were in a step with it"),
                            ("unbegun", "rank 1 does not begin step 9"),
                            ("twice", "rank 1 begins step 9 a second time"),
                            ("alone", "in step 9: rank 1 is in its block after")):
            self.check_leaves(fault, says)

    def test_a_loop_that_any_rank_stops_ends_on_all_after_the_same_step(self):
        job = self.start_job(steps=10 ** 6, faults="stop:1:9")
        self.assertEqual(job.end(), 0, job.errors())
        ends = job.lines("end")
        self.assertEqual([(line["done"], line["stopping"]) for line in ends], [(10, True)] * 3, job.errors())
        self.assertEqual(len({line["params"] for line in ends}), 1)

    def test_a_rank_dies_while_a_newcomer_is_taken_in(self):
        job = self.run_job(faults="forward:0:9,regroup:1:3")
        check_steps(self, job, STEPS)

    @long
    def test_a_rank_dies_while_its_peers_connect_to_it(self):
        """Of two ranks the one with the higher port connects, and the other waits for that, which nothing but its agent ends.
        Rank 0 comes new each time, and at last dies before its peers know where to reach it; rank 2 holds the state."""
        job = self.run_job(faults="forward:0:9,connect:0:3,connect:0:5,meet:0:7")
        check_steps(self, job, STEPS)
        self.assertNotIn("did not leave the generation", job.errors())
        self.assertEqual(len(self.survivors_of(job)), 2, job.errors())

    @long
    def test_who_waits_for_the_whole_world_has_the_bits_of_a_run_without_faults(self):
        options = {"min": 3, "fixed_layout": 1, "norm": 1, "drop": 1}
        quiet = self.run_job(**options).lines("end")
        job = self.run_job(faults="forward:0:5,reduce:1:12,update:2:20,begin:0:30", **options)
        check_steps(self, job, STEPS)
        self.assertEqual(job.lines("end")[0]["params"], quiet[0]["params"])
        self.assertEqual(job.lines("end")[0]["moments"], quiet[0]["moments"])

    @long
    def test_loader_processes_and_batch_norm_survive(self):
        job = self.run_job(faults="reduce:0:9", loaders=1, norm=1, world=2)
        check_steps(self, job, STEPS)

    @long
    def test_a_torn_step_is_healed_by_a_whole_peer_or_all_begin_again(self):
        job = self.run_job(faults="torn:1:9")
        self.assertIn("no worker holds a whole state", job.errors())
        self.assertEqual({line["done"] for line in job.lines("end")}, {STEPS})
        self.assertEqual(len({line["params"] for line in job.lines("end")}), 1)

    @long
    def test_an_error_of_the_scripts_own_is_shown_and_its_peers_go_on(self):
        job = self.run_job(faults="raise:1:9")
        check_steps(self, job, STEPS)
        self.assertIn("ValueError: a bug of the script", job.errors())
        self.assertEqual(len(self.survivors_of(job)), 2)

    @long
    def test_a_rank_that_sleeps_is_named_and_its_peers_go_on(self):
        job = self.run_job(faults="asleep:1:9", arguments=heartbeat_timeout(4))
        check_steps(self, job, STEPS)
        self.assertEqual(len(self.survivors_of(job)), 2, job.errors())
        self.assertIn("rank 1", "".join(line["what"] for line in job.events("hang")) + job.errors())

    @long
    def test_a_rank_that_sleeps_on_one_of_two_nodes_is_named_and_those_of_both_nodes_go_on(self):
        for rank in (0, 3):
            job = self.run_job(faults=f"asleep:{rank}:9", world=4, nodes="2", arguments=heartbeat_timeout(4))
            check_steps(self, job, STEPS)
            self.assertEqual([line["rank"] for line in job.events("hang")], [rank], job.errors())
            self.assertEqual(len(self.survivors_of(job)), 3, job.errors())

    @long
    def test_without_gloos_connections_recovery_is_as_right_and_slower(self):
        for blind, survivors in ((0, 3), (1, 2)):
            # Rank 2 waits for ranks that live. Who cannot be woken is ended by its agent, here after 4 s.
            with unittest.mock.patch.dict(os.environ, DTRUN_TEST_TIMES=f"pause={soon(4)}"):
                job = self.run_job(faults="forward:0:9", world=4, blind=blind)
            check_steps(self, job, STEPS)
            self.assertEqual(len(self.survivors_of(job)), survivors, job.errors())
            self.assertEqual("did not leave the generation" in job.errors(), bool(blind), job.errors())

    @unittest.skipIf(chaos_hosts.why_none(), "network namespaces cannot be made here")
    def test_a_node_whose_cable_is_cut_is_left_behind_and_taken_in_again_with_its_state(self):
        """Nobody gets a reset: who waits in gloo is woken by its agent alone."""
        with tempfile.TemporaryDirectory() as disk, chaos_hosts.Hosts(2, disk) as hosts:
            job = self.start_job(steps=10 ** 6, pause=0.05, world=4, nodes="1:2", hosts=hosts, arguments=impatient())
            before = job.whole()
            self.assertIsNotNone(before, job.errors())
            hosts.cut(1, "both")
            alone = job.wait_for(lambda: [line for line in job.lines("step") if line["world"] == 2], 60)
            self.assertTrue(alone, job.errors())
            hosts.mend(1, "both")
            after = job.whole(alone[0]["gen"])
            self.assertIsNotNone(after, job.errors())
            self.assertEqual(set(before[1].values()), set(after[1].values()), job.errors())
            job.tell_to_end()
        steps = job.lines("step")
        self.assertEqual(len({line["hash"] for line in steps}), len({line["step"] for line in steps}))

    @long
    @unittest.skipIf(chaos_hosts.why_none(), "network namespaces cannot be made here")
    def test_a_node_whose_cable_stays_cut_ends_with_a_word_on_it_and_the_other_goes_on(self):
        with tempfile.TemporaryDirectory() as disk, chaos_hosts.Hosts(2, disk) as hosts:
            *options, conf = impatient()
            job = self.start_job(steps=10 ** 6, pause=0.05, world=4, nodes="1:2", hosts=hosts,
                                 arguments=(*options, f"{conf},read_timeout=15"))
            self.assertIsNotNone(job.whole(), job.errors())
            hosts.cut(1, "both")
            self.assertEqual(exit_code(job.agents[1]), 69, job.errors())
            self.assertRegex(job.errors(), r"was out of reach for 1\d s")
            self.assertNotIn("killing", job.errors())
            self.assertEqual(job.lines("end"), [], job.errors())  # the others go on: this is not the job's last state
            self.assertIsNone(job.process.poll(), job.errors())
            self.assertEqual(job.tell_to_end(), [143, 69], job.errors())

    def check_stopped(self, stop, code, **options):
        """Told to end, all end after the same step, and each saves without waiting until another has."""
        job = self.start_job(steps=10 ** 6, together=1, save=4, faults="lag:1:40", **options)
        self.assertTrue(job.wait_for(lambda: job.lines("lagging")), job.errors())
        stop(job)  # its peers are in a step that it does not begin
        self.assertEqual(job.end(60), code, job.errors())
        ends = job.lines("end")
        self.assertEqual((len(ends), len(job.lines("saved"))), (3, 3), job.errors())
        self.assertEqual({line["stopping"] for line in ends}, {True})
        self.assertEqual(len({(line["done"], line["params"]) for line in ends}), 1)
        self.assertNotIn("Traceback", job.errors())

    def test_sigterm_ends_all_after_the_same_step_and_the_script_can_save(self):
        self.check_stopped(lambda job: job.process.send_signal(signal.SIGTERM), 143)

    @long
    def test_ctrl_c_is_the_same_and_so_it_is_with_loader_processes(self):
        self.check_stopped(lambda job: job.process.send_signal(signal.SIGTERM), 143, loaders=1)
        self.check_stopped(KitJob.press_ctrl_c, 130, terminal=True, loaders=1)
        self.check_stopped(lambda job: job.process.send_signal(signal.SIGINT), 130)

    @long
    def test_a_second_ctrl_c_ends_at_once(self):
        job = self.start_job(steps=10 ** 6, save=600, terminal=True)
        self.assertIsNotNone(job.whole(), job.errors())
        job.press_ctrl_c()
        self.assertTrue(job.wait_for(lambda: job.lines("end")), job.errors())
        time.sleep(0.5)  # one that is repeated within a quarter of a second counts once
        job.press_ctrl_c()
        self.assertEqual(job.end(15), 130, job.errors())
        self.assertEqual(job.lines("saved"), [])

    @long
    def test_ctrl_c_outside_of_steps_ends_a_script_as_ever(self):
        for event, options in (("loading", {"load": 600}), ("end", {"steps": 3, "save": 600})):
            job = self.start_job(terminal=True, **options)
            self.assertTrue(job.wait_for(lambda: len(job.lines(event)) == job.world), job.errors())
            job.press_ctrl_c()
            self.assertEqual(job.end(20), 130, job.errors())
            self.assertEqual(job.lines("saved"), [])

    @long
    def test_a_node_that_joins_loads_before_the_others_stop_for_it(self):
        job = self.start_job(nodes="2:3", later=1, steps=10 ** 6, pause=0.02,
                             arguments=("--recovery", "memory", "--rdzv_conf", "last_call_timeout=1"))
        job.world = 2
        two = job.whole()
        self.assertIsNotNone(two, job.errors())
        joined = time.time()
        job.start_node()
        job.world = 3
        three = job.whole(two[0])
        self.assertIsNotNone(three, job.errors())
        job.tell_to_end()
        loaded = max(line["t"] for line in job.lines("loaded"))
        before = [line for line in job.lines("step") if line["gen"] == two[0]]
        after = [line for line in job.lines("step") if line["gen"] == three[0]]
        self.assertGreater(max(line["t"] for line in before), loaded)  # they trained until then
        pause = min(line["fair"] for line in after) - max(line["fair"] for line in before)
        print(f"the others pause for {pause * 1e3:.0f} ms", file=sys.stderr)
        self.assertLess(pause, (loaded - joined) / 3)
        self.assertTrue(set(two[1].values()) < set(three[1].values()))

    @long
    def test_without_recovery_memory_it_is_a_plain_loop_and_all_begin_again(self):
        job = self.run_job(faults="forward:1:9", arguments=(), world=2)
        self.assertEqual(self.survivors_of(job), [])
        self.assertEqual(len(job.lines("loaded")), 4)
        self.assertEqual({line["done"] for line in job.lines("end")}, {STEPS})
        self.assertIn("started without --recovery memory", job.errors())

    def test_a_script_that_never_heard_of_the_kit_starts_again_whole(self):
        script = kit_job.new_folder() / "script.py"
        script.write_text("import os\nout = os.environ['KIT_OUT']\nopen(out, 'a').write('{\"event\": \"begun\"}\\n')\n"
                          "while len(open(out).readlines()) < 2: pass\n"
                          "os.environ['RANK'] == '0' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.abort()\n")
        job = self.run_job(world=2, program=[str(script)])
        self.assertEqual(len(job.lines("begun")), 4, job.errors())

    def test_progress_from_a_shell_is_a_sign_of_life(self):
        script = "for i in 1 2 3 4 5 6 7; do echo '{\"progress\": {\"step\": '$i'}}' >&3; sleep 0.5; done"
        job = self.run_job(world=1, arguments=heartbeat_timeout(2)[2:], program=["--no_python", "bash", "-c", script])
        self.assertEqual(job.events("hang"), [])
        script = "echo '{\"progress\": {\"step\": 1}}' >&3; exec 3>&-; sleep 4"  # it says that it gives no more
        job = self.run_job(world=1, arguments=heartbeat_timeout(2)[2:], program=["--no_python", "bash", "-c", script])
        self.assertEqual(job.events("hang"), [])
        script = "echo '{\"progress\": {\"step\": 1}}' >&3; sleep 600"
        job = self.run_job(code=137, world=1, restarts=0, arguments=("--heartbeat_timeout", "1"),
                           program=["--no_python", "bash", "-c", script])
        self.assertEqual(len(job.events("hang")), 1)

    @long
    def test_nccl_is_aborted_and_its_peers_go_on(self):
        gpus = kit_job.gpus_of_torch()
        if gpus < 2:
            self.skipTest("needs a PyTorch with two GPUs")
        self.check_killed(faults="reduce:1:9", world=min(gpus, 3), backend="nccl")

    def test_torch_is_as_the_kit_takes_it_to_be(self):
        script = kit_job.TRAIN.parent / "private.py"
        probe = subprocess.run([kit_job.python_with_torch(), str(script)], capture_output=True, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(probe.returncode, 0, probe.stdout + probe.stderr)

    def test_a_peers_state_is_made_of_known_classes_alone(self):
        script = kit_job.TRAIN.parent / "state.py"
        done = subprocess.run([kit_job.python_with_torch(), str(script), str(kit_job.new_folder())], capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_shares_of_a_step_have_each_sample_once(self):
        script = ("from dtrun.batches import share\n"
                  "for count in range(20):\n"
                  "    for world in range(1, 8):\n"
                  "        shares = [share(count, rank, world) for rank in range(world)]\n"
                  "        assert [sample for each in shares for sample in each] == list(range(count)), shares\n"
                  "        assert max(map(len, shares)) - min(map(len, shares)) <= 1, shares\n")
        environment = {**os.environ, "PYTHONPATH": str(kit_job.ROOT / "worker/kit/python")}
        done = subprocess.run([kit_job.python_with_torch(), "-c", script], capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)

    @long
    def test_plain_python_and_torchrun_run_the_same_script(self):
        out = kit_job.new_folder() / "out.jsonl"
        environment = {**os.environ, "KIT_OUT": str(out), "KIT_STEPS": "8", "OMP_NUM_THREADS": "1"}
        for launcher, ends in (([], 1), (kit_job.torchrun(2), 2)):
            out.unlink(missing_ok=True)
            subprocess.run([kit_job.python_with_torch(), *launcher, str(kit_job.TRAIN)], env=environment, check=True)
            done = [(line["done"], line["params"]) for line in lines_of(out, "end")]
            self.assertEqual((len(done), done[0][0], len(set(done))), (ends, 8, 1))


if __name__ == "__main__":
    DTRUN = kit_job.dtrun_to_test()
    cases.run()
