#include "rendezvous/text/job_metrics.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <ctime>
#include <limits>
#include <sstream>
#include <vector>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous::job_metrics_test {
namespace {

using v1::RunStatus;

// A run at work with `nodes` nodes of two workers each.
RunStatus run_of(int nodes, std::int64_t generation = 3) {
  RunStatus run;
  run.set_run_id("mnist");
  run.set_phase(RunStatus::RUNNING);
  run.set_generation(generation);
  run.set_world_size(2 * nodes);
  run.set_restart_count(2);
  run.set_max_restarts(9);
  run.mutable_goodput()->set_training(60);
  run.mutable_goodput()->set_down(20);
  run.mutable_goodput()->set_best_step(100);
  run.mutable_goodput()->set_steps_redone(15);
  run.mutable_progress()->set_step(90);
  run.mutable_progress()->set_total_steps(500);
  run.mutable_progress()->set_loss(0.25);
  for (int node = 0; node < nodes; ++node) {
    v1::MemberStatus* member = run.add_members();
    member->set_state(v1::MemberStatus::RUNNING);
    member->set_host("node" + std::to_string(node));
    member->set_group_rank(node);
    member->set_heartbeat_age_s(0.5);
    for (int local = 0; local < 2; ++local) {
      v1::WorkerStatus* worker = member->add_workers();
      worker->set_rank(2 * node + local);
      worker->set_pid(100 + local);
      worker->mutable_times()->set_steps(10);
      worker->mutable_times()->set_math(1.5);
      worker->mutable_times()->set_wait_peers(0.5);
      worker->mutable_usage()->set_cpu(2.5);
      worker->mutable_usage()->set_read_bytes(4096);
      worker->mutable_usage()->set_resident_bytes(1 << 20);
      worker->mutable_usage()->set_output_age(7 + local);
    }
  }
  return run;
}

std::string text_of(JobMetrics& metrics, const RunStatus& run, double now = 1000) {
  return metrics.text(std::span(&run, 1), ProcessFacts{.cpu_seconds = 3.25}, now, "0.1.0");
}

// The value of a sample; NaN if it is not there once.
double value_in(const std::string& text, const std::string& sample) {
  double value = std::numeric_limits<double>::quiet_NaN();
  std::istringstream lines(text);
  int found = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(sample + " ")) value = std::stod(line.substr(sample.size())), ++found;
  return found == 1 ? value : std::numeric_limits<double>::quiet_NaN();
}

const std::string kRun = R"(run_id="mnist")";

}  // namespace

TEST_CASE("a job, its time, its nodes and its workers have their names and values") {
  JobMetrics metrics;
  const std::string text = text_of(metrics, run_of(2));
  CHECK(value_in(text, R"(dtrun_build_info{version="0.1.0"})") == 1);
  CHECK(value_in(text, "dtrun_job_phase{" + kRun + R"(,phase="running"})") == 1);
  CHECK(value_in(text, "dtrun_job_phase{" + kRun + R"(,phase="over"})") == 0);
  CHECK(value_in(text, "dtrun_job_restarts_total{" + kRun + "}") == 2);
  CHECK(value_in(text, "dtrun_job_max_restarts{" + kRun + "}") == 9);
  CHECK(value_in(text, "dtrun_job_time_seconds_total{" + kRun + R"(,spent="down"})") == 20);
  CHECK(value_in(text, "dtrun_job_goodput_ratio{" + kRun + "}") == 0.75);
  CHECK(value_in(text, "dtrun_job_start_time_seconds{" + kRun + "}") == 920);
  CHECK(value_in(text, "dtrun_train_steps_total{" + kRun + "}") == 115);
  CHECK(value_in(text, "dtrun_train_step{" + kRun + "}") == 90);
  CHECK(value_in(text, "dtrun_train_loss{" + kRun + "}") == 0.25);
  CHECK(value_in(text, "dtrun_nodes{" + kRun + R"(,state="running"})") == 2);
  CHECK(value_in(text, "dtrun_node_heartbeat_age_seconds{" + kRun + R"(,host="node1",node="1"})") == 0.5);
  const std::string worker = kRun + R"(,rank="3",host="node1")";
  CHECK(value_in(text, "dtrun_worker_steps_total{" + worker + "}") == 10);
  CHECK(value_in(text, "dtrun_worker_step_time_seconds_total{" + worker + R"(,part="math"})") == 1.5);
  CHECK(value_in(text, "dtrun_worker_cpu_seconds_total{" + worker + "}") == 2.5);
  CHECK(value_in(text, "dtrun_worker_io_bytes_total{" + worker + R"(,direction="read"})") == 4096);
  CHECK(value_in(text, "dtrun_worker_last_output_age_seconds{" + worker + "}") == 8);
  CHECK(value_in(text, "process_cpu_seconds_total") == 3.25);
  CHECK(text.find("dtrun_job_exit_code") == std::string::npos);
  CHECK(text.find("dtrun_eval_accuracy_ratio") == std::string::npos);  // not known is not 0
}

TEST_CASE("a family stands once, with its help and type before all of its samples") {
  JobMetrics metrics;
  const RunStatus runs[] = {run_of(1), [] {
                              RunStatus other = run_of(1);
                              other.set_run_id("other");
                              return other;
                            }()};
  const std::string text = metrics.text(runs, {}, 1000, "0.1.0");
  const std::string family =
      "# HELP dtrun_job_generation The newest generation, 0 before the first.\n"
      "# TYPE dtrun_job_generation gauge\n"
      "dtrun_job_generation{run_id=\"mnist\"} 3\n"
      "dtrun_job_generation{run_id=\"other\"} 3\n";
  CHECK(text.find(family) != std::string::npos);
  CHECK(text.find("# TYPE dtrun_job_generation", text.find(family) + family.size()) == std::string::npos);
}

TEST_CASE("names with any bytes stay one label") {
  RunStatus run = run_of(1);
  run.set_run_id("a\"b\\c\nd");
  JobMetrics metrics;
  CHECK(text_of(metrics, run).find("dtrun_job_generation{run_id=\"a\\\"b\\\\c") != std::string::npos);
  CHECK(label_text({{"x", "\xff"}}) == "x=\"?\"");
}

TEST_CASE("counters go on where a generation and a worker begin again") {
  JobMetrics metrics;
  const std::string worker = "{" + kRun + R"(,rank="1",host="node0"})";
  text_of(metrics, run_of(1));
  RunStatus next = run_of(1, 4);
  v1::WorkerStatus* again = next.mutable_members(0)->mutable_workers(1);
  again->mutable_times()->set_steps(4);  // of the new generation
  again->mutable_usage()->set_cpu(3);    // the process lives on
  std::string text = text_of(metrics, next);
  CHECK(value_in(text, "dtrun_worker_steps_total" + worker) == 14);
  CHECK(value_in(text, "dtrun_worker_cpu_seconds_total" + worker) == 3);
  again->set_pid(777);  // another process
  again->mutable_usage()->set_cpu(0.5);
  text = text_of(metrics, next);
  CHECK(value_in(text, "dtrun_worker_steps_total" + worker) == 14);
  CHECK(value_in(text, "dtrun_worker_cpu_seconds_total" + worker) == 3.5);
}

TEST_CASE("a counter does not fall as an estimate is put right, nor while a run is not asked about") {
  JobMetrics metrics;
  const std::string training = "dtrun_job_time_seconds_total{" + kRun + R"(,spent="training"})";
  text_of(metrics, run_of(1));
  RunStatus less = run_of(1);
  less.mutable_goodput()->set_training(59.9);
  less.mutable_goodput()->set_steps_redone(14);
  std::string text = text_of(metrics, less);
  CHECK(value_in(text, training) == 60);
  CHECK(value_in(text, "dtrun_train_steps_total{" + kRun + "}") == 115);
  CHECK(value_in(metrics.text({}, {}, 2000, ""), training) != 60);
  CHECK(value_in(text_of(metrics, less, 3000), training) == 60);
  CHECK(value_in(metrics.text({}, {}, 3000 + kForgetRunAfter + 1, ""), training) != 60);
  CHECK(value_in(text_of(metrics, less, 9000), training) == 59.9);
}

TEST_CASE("the next run of a name begins at 0") {
  const std::string training = "dtrun_job_time_seconds_total{" + kRun + R"(,spent="training"})";
  for (const bool was_over : {false, true}) {
    JobMetrics metrics;
    RunStatus first = run_of(1), next = run_of(1, was_over ? 3 : 1);
    if (was_over) first.set_phase(RunStatus::OVER);
    text_of(metrics, first);
    next.mutable_goodput()->set_training(2);
    CHECK(value_in(text_of(metrics, next), training) == 2);
  }
}

TEST_CASE("the time of the last step is that of the scrape that first saw it") {
  JobMetrics metrics;
  const std::string last = "dtrun_last_step_time_seconds{" + kRun + "}";
  CHECK(value_in(text_of(metrics, run_of(1), 1000), last) == 1000);
  CHECK(value_in(text_of(metrics, run_of(1), 1010), last) == 1000);
  RunStatus later = run_of(1);
  later.mutable_goodput()->set_best_step(101);
  CHECK(value_in(text_of(metrics, later, 1020), last) == 1020);
}

TEST_CASE("how long steps took is a histogram, which goes on in the next generation") {
  JobMetrics metrics;
  RunStatus run = run_of(1);
  CHECK(text_of(metrics, run).find("dtrun_step_duration") == std::string::npos);
  for (const int count : {1, 2, 0, 5}) run.mutable_step_durations()->add_counts(count);
  run.mutable_step_durations()->set_seconds(0.04);
  const std::string name = "dtrun_step_duration_seconds";
  const auto bucket = [&](const std::string& text, const char* le) {
    return value_in(text, name + "_bucket{" + kRun + ",le=\"" + le + "\"}");
  };
  std::string text = text_of(metrics, run);
  CHECK(text.find("# TYPE dtrun_step_duration_seconds histogram\n") != std::string::npos);
  CHECK(bucket(text, "0.001") == 1);
  CHECK(bucket(text, "0.002") == 3);
  CHECK(bucket(text, "0.01") == 8);
  CHECK(bucket(text, "100") == 8);
  CHECK(bucket(text, "+Inf") == 8);
  CHECK(value_in(text, name + "_count{" + kRun + "}") == 8);
  CHECK(value_in(text, name + "_sum{" + kRun + "}") == 0.04);
  run.set_generation(4);
  CHECK(bucket(text_of(metrics, run), "+Inf") == 8);  // rank 0 has not spoken in it yet
  run.mutable_step_durations()->clear_counts();
  for (const int count : {0, 0, 0, 9}) run.mutable_step_durations()->add_counts(count);
  run.mutable_step_durations()->set_seconds(0.09);
  text = text_of(metrics, run);
  CHECK(bucket(text, "0.005") == 3);
  CHECK(bucket(text, "+Inf") == 17);
  CHECK(value_in(text, name + "_sum{" + kRun + "}") == doctest::Approx(0.13));
}

TEST_CASE("checkpoints are counted through generations, and the newest is told of") {
  JobMetrics metrics;
  RunStatus run = run_of(1);
  CHECK(text_of(metrics, run).find("dtrun_checkpoint") == std::string::npos);
  training::Checkpoints* told = run.mutable_checkpoints();
  const auto value = [&](double now, const char* name) {
    return value_in(text_of(metrics, run, now), std::string(name) + "{" + kRun + "}");
  };
  CHECK(value(1000, "dtrun_checkpoints_total") == 0);
  CHECK(text_of(metrics, run).find("dtrun_checkpoint_step") == std::string::npos);  // none is not step 0
  told->set_written(3), told->set_failed(1), told->set_step(60), told->set_seconds(0.5),
      told->set_bytes(4096);
  CHECK(value(1010, "dtrun_checkpoints_total") == 3);
  CHECK(value(1020, "dtrun_checkpoint_failures_total") == 1);
  CHECK(value(1020, "dtrun_checkpoint_step") == 60);
  CHECK(value(1020, "dtrun_checkpoint_duration_seconds") == 0.5);
  CHECK(value(1020, "dtrun_checkpoint_bytes") == 4096);
  CHECK(value(1020, "dtrun_checkpoint_time_seconds") == 1010);
  run.set_generation(4);
  told->Clear();
  CHECK(value(1030, "dtrun_checkpoints_total") == 3);
  CHECK(value(1030, "dtrun_checkpoint_step") == 60);
  told->set_written(3), told->set_step(80);
  CHECK(value(1040, "dtrun_checkpoints_total") == 6);
  CHECK(value(1040, "dtrun_checkpoint_step") == 80);
}

TEST_CASE("failures are told by cause, also those that have not been") {
  JobMetrics metrics;
  RunStatus run = run_of(1);
  run.mutable_failures()->set_signal(2);
  run.mutable_failures()->set_node_lost(1);
  const std::string text = text_of(metrics, run);
  const auto count = [&](const char* cause) {
    return value_in(text, "dtrun_job_failures_total{" + kRun + ",cause=\"" + cause + "\"}");
  };
  CHECK(count("signal") == 2);
  CHECK(count("node_lost") == 1);
  CHECK(count("exit") == 0);
  CHECK(count("out_of_memory") == 0);
  CHECK(count("hung") == 0);
}

TEST_CASE("what is not measured of a worker's network and GPU is absent") {
  JobMetrics metrics;
  RunStatus run = run_of(1);
  std::string text = text_of(metrics, run);
  CHECK(text.find("dtrun_worker_network") == std::string::npos);
  CHECK(text.find("dtrun_worker_gpu") == std::string::npos);
  v1::WorkerStatus* worker = run.mutable_members(0)->mutable_workers(1);
  worker->mutable_times()->set_sent(1000);
  worker->mutable_times()->set_received(0);
  worker->mutable_gpu()->set_number(3);
  worker->mutable_gpu()->set_temperature(61);
  worker->mutable_gpu()->add_throttled("heat");
  text = text_of(metrics, run);
  const std::string labels = kRun + R"(,rank="1",host="node0")", gpu = labels + R"(,gpu="3")";
  CHECK(value_in(text, "dtrun_worker_network_bytes_total{" + labels + R"(,direction="sent"})") == 1000);
  CHECK(value_in(text, "dtrun_worker_network_bytes_total{" + labels + R"(,direction="received"})") == 0);
  CHECK(text.find(R"(dtrun_worker_network_bytes_total{run_id="mnist",rank="0")") == std::string::npos);
  CHECK(value_in(text, "dtrun_worker_gpu_temperature_celsius{" + gpu + "}") == 61);
  CHECK(value_in(text, "dtrun_worker_gpu_throttled{" + gpu + R"(,reason="heat"})") == 1);
  CHECK(text.find("dtrun_worker_gpu_utilization") == std::string::npos);
}

TEST_CASE("the slow worker is named as long as the verdict does") {
  JobMetrics metrics;
  RunStatus run = run_of(2);
  CHECK(value_in(text_of(metrics, run), "dtrun_straggler_loss_ratio{" + kRun + "}") == 0);
  run.mutable_verdict()->set_text("rank 3 is slow");
  run.mutable_verdict()->set_rank(3);
  run.mutable_verdict()->set_cause("math");
  run.mutable_verdict()->set_loss(0.25);
  const std::string text = text_of(metrics, run);
  CHECK(value_in(text, "dtrun_straggler_loss_ratio{" + kRun + "}") == 0.25);
  CHECK(value_in(text, "dtrun_worker_straggler{" + kRun + R"(,rank="3",cause="math"})") == 1);
  run.clear_verdict();
  CHECK(value_in(text_of(metrics, run), "dtrun_straggler_loss_ratio{" + kRun + "}") == 0);
}

TEST_CASE("a job that is over has its exit code, and its start stays") {
  JobMetrics metrics;
  RunStatus run = run_of(1);
  run.set_phase(RunStatus::OVER);
  run.set_exit_code(137);
  run.set_ended_age_s(50);
  const std::string text = text_of(metrics, run);
  CHECK(value_in(text, "dtrun_job_exit_code{" + kRun + "}") == 137);
  CHECK(value_in(text, "dtrun_job_start_time_seconds{" + kRun + "}") == 870);
}

TEST_CASE("1,000 ranks are answered in less than 50 ms, and more than 1,024 as sums of their nodes") {
  JobMetrics metrics;
  const RunStatus large = run_of(500);
  text_of(metrics, large);
  const std::clock_t begin = std::clock();  // the machine may be busy
  const std::string text = text_of(metrics, large);
  const double took = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("1,000 ranks: %.1f ms, %zu bytes\n", took, text.size());
  CHECK(took < (DTRUN_SANITIZED ? 500 : 50));
  CHECK(value_in(text, "dtrun_worker_steps_total{" + kRun + R"(,rank="999",host="node499"})") == 10);
  JobMetrics more;
  CHECK(text_of(more, run_of(kMostWorkerSeries / 2)).find("rank=\"1023\"") != std::string::npos);
  const std::string sums = text_of(more, run_of(kMostWorkerSeries / 2 + 1));
  CHECK(sums.find("rank=") == std::string::npos);
  const std::string node = kRun + R"(,host="node512",node="512"})";
  CHECK(value_in(sums, "dtrun_worker_steps_total{" + node) == 20);
  CHECK(value_in(sums, "dtrun_worker_resident_memory_bytes{" + node) == 2 << 20);
  CHECK(value_in(sums, "dtrun_worker_last_output_age_seconds{" + node) == 7);
}

}  // namespace dtrun::rendezvous::job_metrics_test
