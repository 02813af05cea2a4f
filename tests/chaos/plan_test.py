"""What scripts/chaos decides, and how it follows a metrics.jsonl: without dtrun, but for one launcher that leaves a process."""

import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "tests/support")]
import cases
import chaos_faults
import chaos_plan
import chaos_run
from chaos_plan import Step
from jobs import wait_for


def steps_of(text):
    """"1@10.0 2@10.5 / 2@11.0": steps with their times, a generation after each slash; two workers."""
    steps, generation = [], 1
    for word in text.split():
        if word == "/":
            generation += 1
        else:
            step, time = word.split("@")
            steps.append(Step(int(step), float(time), generation, 2))
    return steps


def notice(time, text):
    return {"time": time, "event": "notice", "text": text}


class ScheduleTest(unittest.TestCase):
    def draw(self, seed=1, faults=200, every=2.0, kinds=tuple(chaos_plan.KINDS), nodes=3, nproc=2):
        return chaos_plan.draw_schedule(seed, faults, every, list(kinds), nodes, nproc)

    def test_a_seed_gives_one_schedule_everywhere(self):
        self.assertEqual(self.draw(seed=5), self.draw(seed=5))
        self.assertNotEqual(self.draw(seed=5), self.draw(seed=6))
        first = self.draw(seed=5, faults=2, kinds=["worker", "stop"], nodes=1)
        self.assertEqual([(fault.kind, fault.workers, round(fault.gap, 6)) for fault in first],
                         [("stop", ((0, 1),), 2.19343), ("stop", ((0, 0),), 2.33786)])

    def test_faults_are_of_all_kinds_and_at_all_places_about_as_often(self):
        schedule = self.draw(faults=400)
        self.assertEqual({fault.kind for fault in schedule}, set(chaos_plan.KINDS))
        self.assertEqual({fault.node for fault in schedule}, {0, 1, 2})
        hit = {place for fault in schedule if fault.kind == "worker" for place in fault.workers}
        self.assertEqual(hit, {(node, rank) for node in range(3) for rank in range(2)})

    def test_gaps_are_a_fifth_around_every(self):
        gaps = [fault.gap for fault in self.draw()]
        self.assertTrue(all(1.6 <= gap <= 2.4 for gap in gaps))
        self.assertLess(min(gaps), 1.65)
        self.assertGreater(max(gaps), 2.35)

    def test_each_kind_hits_as_many_workers_as_it_says(self):
        count = {"worker": 1, "stop": 1, "workers": 2, "all": 6, "agent": 0, "node": 0, "leave": 0, "store": 0,
                 "cut": 0, "freeze": 0, "long_cut": 0, "disk": 0, "console": 1, "quit": 1, "terminate": 0}
        for fault in self.draw():
            self.assertEqual(len(set(fault.workers)), count[fault.kind], fault)

    def test_two_at_once_are_two_also_where_there_are_no_more(self):
        for fault in self.draw(kinds=["workers"], nodes=2, nproc=1):
            self.assertEqual(set(fault.workers), {(0, 0), (1, 0)})

    def test_out_of_touch_for_one_second_to_a_minute_as_often_short_as_long(self):
        seconds = [fault.seconds for fault in self.draw(kinds=["cut", "freeze"])]
        self.assertTrue(all(1 <= each <= 60 for each in seconds))
        self.assertLess(min(seconds), 1.1)
        self.assertGreater(max(seconds), 55)
        self.assertTrue(80 <= sum(each < 60 ** 0.5 for each in seconds) <= 120)
        self.assertEqual({fault.seconds for fault in self.draw(kinds=["agent", "worker"])}, {0.0})

    def test_long_cuts_disks_and_consoles_last_as_long_as_they_say(self):
        for kind, (shortest, longest) in chaos_plan.LASTS_S.items():
            seconds = [fault.seconds for fault in self.draw(kinds=[kind])]
            self.assertTrue(all(shortest <= each <= longest for each in seconds))
            self.assertLess(min(seconds), shortest + (longest - shortest) / 20)
            self.assertGreater(max(seconds), longest - (longest - shortest) / 20)
        self.assertEqual({fault.way for fault in self.draw(kinds=["long_cut"])}, {"both", "in", "out"})

    def test_a_cable_is_cut_both_ways_and_either_way_and_agents_coordinators_and_launchers_freeze(self):
        schedule = self.draw(kinds=["cut", "freeze"])
        self.assertEqual({fault.way for fault in schedule if fault.kind == "cut"}, {"both", "in", "out"})
        self.assertEqual({fault.way for fault in schedule if fault.kind == "freeze"}, {"agent", "coordinator"})
        launched = chaos_plan.draw_schedule(1, 50, 2.0, ["freeze"], 3, 1, freezes=("agent", "coordinator", "launcher"))
        self.assertEqual({fault.way for fault in launched}, {"agent", "coordinator", "launcher"})
        self.assertTrue(all(fault.seconds <= 4 for fault in chaos_plan.draw_schedule(1, 50, 2.0, ["cut"], 3, 1, longest=4)))

    def test_a_job_that_goes_on_without_a_node_needs_steps_for_that_time_too(self):
        schedule = self.draw(kinds=["cut"])
        away = sum(fault.seconds for fault in schedule)
        goes_on, waits = (chaos_plan.seconds_needed(schedule, 2.0, either) for either in (True, False))
        self.assertAlmostEqual(goes_on - waits, chaos_plan.SPARE_TIME * away)

    def test_the_job_is_longer_than_its_faults(self):
        schedule = self.draw()
        seconds = chaos_plan.seconds_needed(schedule, 2.0)
        self.assertGreater(seconds, sum(fault.gap for fault in schedule) * 1.2)
        self.assertEqual(chaos_plan.steps_for(10.0, steps_of("5@100.0 6@100.1 7@100.2")), 100)


class RecoveryTest(unittest.TestCase):
    def recovered(self, kind, at, text):
        step = chaos_plan.recovery_step(kind, at, steps_of(text))
        return step and (step.step, step.time)

    def test_a_step_that_was_in_flight_is_no_recovery(self):
        self.assertIsNone(self.recovered("worker", 10.55, "1@10.0 2@10.5 3@10.6"))
        self.assertEqual(self.recovered("worker", 10.55, "1@10.0 2@10.5 3@10.6 / 2@11.0 3@11.1"), (2, 11.0))

    def test_a_lost_store_ends_no_generation(self):
        self.assertEqual(self.recovered("store", 10.55, "1@10.0 2@10.5 3@10.6"), (3, 10.6))
        self.assertIsNone(self.recovered("store", 10.65, "1@10.0 2@10.5 3@10.6"))

    def test_a_node_that_was_out_of_touch_need_not_end_a_generation(self):
        for kind in ("cut", "freeze"):
            self.assertEqual(self.recovered(kind, 10.55, "1@10.0 2@10.5 3@10.6"), (3, 10.6))
            self.assertIsNone(self.recovered(kind, 10.55, "1@10.0 2@10.5"))

    def test_a_job_that_was_started_again_counts_its_generations_anew(self):
        again = [*steps_of("1@10.0 / 2@10.5 / 3@11.0"), Step(4, 13.0, 1, 2)]
        self.assertEqual(chaos_plan.recovery_step("terminate", 12.0, again), again[-1])
        self.assertIsNone(chaos_plan.recovery_step("worker", 12.0, again))

    def test_times_of_steps_are_cut_to_milliseconds_and_so_is_that_of_the_fault(self):
        self.assertEqual(self.recovered("store", 10.5009, "1@10.0 2@10.5"), (2, 10.5))

    def test_of_faults_in_a_row_each_has_the_step_that_ended_it(self):
        text = "1@10.0 2@10.5 / 1@11.0 / 2@12.0"
        self.assertEqual(self.recovered("worker", 10.6, text), (1, 11.0))
        self.assertEqual(self.recovered("worker", 10.7, text), (1, 11.0))
        self.assertEqual(self.recovered("worker", 11.1, text), (2, 12.0))

    def test_steps_done_again_are_counted_where_training_went_back(self):
        steps = steps_of("1@10.0 2@10.5 3@10.6 / 2@11.0 3@11.1 4@11.2 / 5@12.0 / 1@13.0")
        self.assertEqual(chaos_plan.redone(steps), [(11.0, 2), (13.0, 5)])
        self.assertEqual(chaos_plan.redone_between(steps, 10.7, 13.0), 2)
        self.assertEqual(chaos_plan.redone_between(steps, 11.5, float("inf")), 5)
        self.assertEqual(chaos_plan.redone(steps_of("1@1.0 2@2.0 / 3@3.0")), [])

    def test_goodput_is_the_quiet_time_over_the_time_under_fire(self):
        self.assertAlmostEqual(chaos_plan.goodput(steps_of("1@10.0 9@13.0"), steps_of("1@50.0 9@54.0")), 0.75)


class StatisticsTest(unittest.TestCase):
    def test_percentiles_are_measured_values(self):
        values = list(range(1, 201))
        self.assertEqual(chaos_plan.statistics_of(values),
                         {"median_ms": 100.5, "p90_ms": 180, "p99_ms": 198, "max_ms": 200})
        self.assertEqual(chaos_plan.percentile([7], 0.99), 7)
        self.assertEqual(chaos_plan.percentile([3, 1, 2], 0.9), 3)

    def test_without_a_value_there_is_no_number(self):
        self.assertEqual(set(chaos_plan.statistics_of([]).values()), {None})


class WaitsTest(unittest.TestCase):
    def test_a_back_off_lasts_until_workers_start_and_is_one_whoever_tells_of_it(self):
        text = "rank 1 on h failed (signal 9 (SIGKILL)), restart 2 of 9 in 1 s"
        events = [{"time": 9.0, "event": "start_workers"}, notice(10.1, text), notice(10.0, text),
                  {"time": 11.0, "event": "start_workers"}, {"time": 11.1, "event": "start_workers"},
                  notice(20.0, "joined 1 of 2 (at least 1) nodes at h:1"), {"time": 25.0, "event": "start_workers"}]
        waits = chaos_plan.waits_of(events)
        self.assertEqual(waits, [(10.0, 11.0, "back-off"), (20.0, 25.0, "for nodes")])
        self.assertEqual(chaos_plan.waited_between(waits, 10.5, 21.0), 1.5)

    def test_a_restart_at_once_is_no_wait(self):
        events = [notice(10.0, "rank 1 on h failed, restart 1 of 9"), {"time": 10.1, "event": "start_workers"}]
        self.assertEqual(chaos_plan.waits_of(events), [])


class LeaderTest(unittest.TestCase):
    def test_the_first_node_leads_until_another_took_over(self):
        self.assertEqual(chaos_plan.leader_of([notice(1.0, "node1 was silent for 2 s")]), 0)
        events = [notice(9.0, "node1, which had the coordinator, is lost: node2 took over"),
                  notice(5.0, "node0, which had the coordinator, is lost: node1 took over"), {"time": 10.0, "event": "ready"}]
        self.assertEqual(chaos_plan.leader_of(events), 2)


class LossTest(unittest.TestCase):
    def test_each_step_stands_once_in_the_metrics(self):
        self.assertEqual(chaos_plan.faults_of_metrics([1, 2, 3], 3), "")
        self.assertIn("lacks 1 of 3 steps, the first of them 2", chaos_plan.faults_of_metrics([1, 3], 3))
        self.assertIn("1 steps twice", chaos_plan.faults_of_metrics([1, 2, 2, 3], 3))
        self.assertIn("other steps", chaos_plan.faults_of_metrics([1, 3, 2], 3))
        self.assertIn("other steps", chaos_plan.faults_of_metrics([1, 2, 3, 4], 3))


class MetricsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = self.folder / "metrics.jsonl"
        self.metrics = chaos_run.Metrics(self.path)
        self.addCleanup(self.metrics.close)
        self.time = 0

    def line(self, step, generation):
        self.time += 1
        return json.dumps({"event": "train", "step": step, "time": self.time, "generation": generation,
                           "world_size": 2}) + "\n"

    def append(self, text):
        with open(self.path, "a") as file:
            file.write(text)
        self.metrics.look()

    def seen(self):
        return [(step.step, step.generation) for step in self.metrics.steps]

    def test_a_file_that_is_not_there_yet_has_no_steps(self):
        self.metrics.look()
        self.assertEqual(self.seen(), [])

    def test_a_torn_line_is_read_when_it_is_whole(self):
        line = self.line(1, 1)
        self.append(line[:20])
        self.assertEqual(self.seen(), [])
        self.append(line[20:])
        self.assertEqual(self.seen(), [(1, 1)])

    def test_what_a_resumed_run_takes_back_is_not_forgotten(self):
        first = self.line(1, 1)
        self.append(first + self.line(2, 1) + self.line(3, 1))
        os.truncate(self.path, len(first))
        self.metrics.look()
        self.append(self.line(2, 2))
        self.assertEqual(self.seen(), [(1, 1), (2, 1), (3, 1), (2, 2)])
        self.assertEqual(self.metrics.steps_in_file(), [1, 2])

    def test_a_file_that_was_taken_back_and_grew_further_between_two_looks_is_noticed(self):
        first = self.line(1, 1)
        self.append(first + self.line(2, 1))
        os.truncate(self.path, len(first))
        self.append(self.line(2, 2) + self.line(3, 2) + self.line(4, 2))
        self.assertEqual(self.seen(), [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2)])
        self.assertEqual(self.metrics.steps_in_file(), [1, 2, 3, 4])

    def test_a_line_that_is_written_again_unchanged_is_one_step(self):
        first, second = self.line(1, 1), self.line(2, 1)
        self.append(first + second)
        os.truncate(self.path, len(first))
        self.metrics.look()
        self.append(second)
        self.assertEqual(self.seen(), [(1, 1), (2, 1)])
        self.assertEqual(self.metrics.steps_in_file(), [1, 2])

    def test_the_end_of_a_run_tells_of_its_parameters(self):
        self.append(self.line(1, 1) + '{"event":"end","step":1,"params_sha256":"abc","time":9}\n')
        self.assertEqual(self.metrics.params_sha256, "abc")

    def test_of_nodes_with_disks_of_their_own_all_is_followed(self):
        other = self.folder / "other.jsonl"
        disks = chaos_run.MetricsOfDisks([self.path, other])
        self.append(self.line(1, 1) + self.line(2, 1))
        disks.look()
        other.write_text(self.line(2, 2) + self.line(3, 2) + '{"event":"end","step":3,"params_sha256":"abc","time":9}\n')
        disks.look()
        self.assertEqual([(step.step, step.generation) for step in disks.steps], [(1, 1), (2, 1), (2, 2), (3, 2)])
        self.assertEqual(disks.steps_in_file(), [1, 2, 3])
        self.assertEqual(disks.params_sha256, "abc")
        disks.close()

    def test_a_process_that_outlives_the_job_is_found_and_named(self):
        (self.folder / "ready.jsonl").write_text(self.line(1, 1))
        leaves_one = ["sh", "-c", f"cp {self.folder}/ready.jsonl {self.path}; setsid sleep 300 & until grep -qs sleep /proc/$!/comm; do :; done"]
        training = chaos_run.Training(self.folder, self.path, 1, 1, 1, leaves_one)
        with mock.patch.object(chaos_run, "LEFTOVER_LIMIT_S", 0.2):
            outcome = chaos_run.outcome_of(training)
        self.assertEqual([name.split(" ", 1)[1] for name in outcome.leftovers], ["(sleep)"])
        self.assertEqual(training.processes(), [])

    def test_workers_that_outlive_their_agent_are_found_and_named(self):
        orphans_one = ["sh", "-c", "LOCAL_RANK=0 setsid sleep 300 & wait"]
        with chaos_run.Training(self.folder, self.path, 1, 1, 1, orphans_one) as training:
            workers = lambda: [pid for pid in training.workers(0).values() if chaos_run.name_of(pid) == "sleep"]
            [worker] = wait_for(workers)
            with mock.patch.object(chaos_faults, "ORPHAN_LIMIT_S", 0.2):
                chaos_faults.kill_agent(training, 0, workers_too=False)
            self.assertEqual(training.problems, [f"workers of node 0 outlived their agent by 0.2 s: pid {worker}"])
        self.assertFalse(training.runs(worker))

    def test_no_fault_is_aimed_at_the_last_steps(self):
        last = chaos_run.LAST_STEPS
        for step, struck in ((100 - last, True), (101 - last, False)):
            self.path.write_text(self.line(step, 1))
            with chaos_run.Training(self.folder, self.path, 100, 1, 1, ["sh", "-c", "LOCAL_RANK=0 sleep 300; true"]) as training:
                fault = chaos_plan.Fault(1, "worker", 0, 0, ((0, 0),))
                wait_for(lambda: training.workers(0))
                self.assertEqual(chaos_faults.strike(training, fault) is not None, struck)

    def test_an_agent_that_fails_is_told_with_the_place_of_its_words(self):
        (self.folder / "ready.jsonl").write_text(self.line(1, 1))
        fails = ["sh", "-c", f"cp {self.folder}/ready.jsonl {self.path}; echo oh no; kill -9 $$"]
        outcome = chaos_run.outcome_of(chaos_run.Training(self.folder, self.path, 1, 1, 1, fails))
        self.assertEqual(outcome.problems, [f"the agent of node 0: SIGKILL; its words are in {self.folder}/agent-0.log"])
        self.assertEqual((self.folder / "agent-0.log").read_text(), "oh no\n")


if __name__ == "__main__":
    cases.run()
