// What a refusal says of a job's memory, compared with its worker's real use; a job that is too large; and
// one that is for too few workers.
#include <doctest/doctest.h>
#include <signal.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tests/e2e/stop_points.h"
#include "tests/e2e/training.h"
#include "tests/support/memory_group.h"
#include "tests/support/skip.h"

namespace dtrun::memory_test {

using namespace dtrun::test;

namespace {

using Json = nlohmann::json;

struct Case {
  std::string name;
  Json model, data, train;
  int workers = 1, lanes = 1;
};

Json gpt2(bool recomputes) {
  return {{"type", "gpt2"}, {"n_layer", 4},       {"n_head", 4},
          {"n_embd", 256},  {"n_positions", 128}, {"gradient_checkpointing", recomputes}};
}

std::vector<std::string> job(const Case& one, const std::filesystem::path& folder) {
  Json config{{"output_dir", (folder / "out").string()},
              {"model", one.model},
              {"data", one.data},
              {"train", {{"max_steps", 4}, {"eval_steps", 2}, {"save_steps", 1}, {"logging_steps", 1}}}};
  config["train"].update(one.train);
  write_text(folder / "job.json", config.dump());
  std::vector<std::string> argv{kDtrun};
  for (const std::string& option : standalone(one.workers, one.lanes)) argv.push_back(option);
  argv.push_back((folder / "job.json").string());
  return argv;
}

// The highest VmHWM of any worker, in bytes.
double peak_of(const std::vector<pid_t>& workers) {
  double peak = 0;
  for (const pid_t worker : workers) {
    const std::string status = read_if_there("/proc/" + std::to_string(worker) + "/status");
    const std::size_t at = status.find("VmHWM:");
    REQUIRE(at != std::string::npos);
    peak = std::max(peak, 1024 * std::stod(status.substr(at + 6)));
  }
  return peak;
}

// Under a limit on address space that none of these jobs fits, the refusal has what a worker needs.
double said_need(const Case& one) {
  const Folder folder;
  std::vector<std::string> argv{"/bin/sh", "-c", "ulimit -s 1024; ulimit -v 180000; exec \"$@\"", "sh"};
  for (const std::string& word : job(one, folder.path())) argv.push_back(word);
  const Ended refused = run(argv);
  CHECK(refused.exit_code == 78);
  const std::string before = "not enough memory: the worker needs ";
  const std::size_t at = refused.err.find(before);
  REQUIRE_MESSAGE(at != std::string::npos, refused.err);
  return std::stod(refused.err.substr(at + before.size())) * (1 << 20);
}

}  // namespace

TEST_CASE("what a job is refused by is about what its worker takes") {
  const Json text{{"type", "text"},
                  {"path", DTRUN_SOURCE_DIR "/docs"},
                  {"files", "*.md"},
                  {"sequence_length", 128},
                  {"test_fraction", 0.02}};
  const Json images{{"type", "synthetic"}, {"samples", 400}, {"shape", {1, 32, 32}}};
  const Json adamw{{"global_batch_size", 32}, {"micro_batch_size", 8}, {"optim", "adamw"}};
  const Json sgd{{"global_batch_size", 256}, {"micro_batch_size", 32}};
  const Json mlp{{"type", "mlp"}, {"hidden_sizes", {4096, 2048}}};
  const std::vector<Case> cases{{"gpt2, two lanes", gpt2(false), text, adamw, 1, 2},
                                {"gpt2, recomputed, three lanes", gpt2(true), text, adamw, 1, 3},
                                {"mlp, three workers", mlp, images, sgd, 3, 1}};
  for (const Case& one : cases) {
    CAPTURE(one.name);
    const double said = said_need(one);
    const Folder folder;
    Process dtrun(joined(job(one, folder.path()), {"train.max_steps=1000000"}));
    // Evaluated twice, and saved each step.
    REQUIRE_MESSAGE(trains(folder / "out", 5), dtrun.err());
    const double peak = peak_of(workers_of(dtrun, static_cast<std::size_t>(one.workers)));
    dtrun.signal(SIGTERM);
    const Ended ended = dtrun.end();
    REQUIRE_MESSAGE(ended.exit_code == 143, ended.err);
    // 15 %, and 10 MB for the process: it differs between machines and builds. What peers send is not
    // counted.
    CHECK(said > 0.7 * peak - 10e6);
    CHECK(said < 1.15 * peak + 10e6);
  }
}

TEST_CASE("a job that cannot fit is refused once, at once, with the numbers") {
  const Folder folder;
  const Case huge{"mlp",
                  {{"type", "mlp"}, {"hidden_sizes", {131072, 131072, 131072}}},
                  {{"type", "synthetic"}, {"samples", 100}},
                  {{"global_batch_size", 64}},
                  4,
                  1};
  const Stopwatch watch;
  const Ended ended = run(job(huge, folder.path()));
  CHECK(watch.fair() < std::chrono::seconds(1));
  CHECK(ended.exit_code == 78);
  CHECK_MESSAGE(ended.err.find("not enough memory: 4 workers need ") != std::string::npos, ended.err);
  CHECK_MESSAGE(ended.err.find("parameters 128 GiB") != std::string::npos, ended.err);
  CHECK_MESSAGE(ended.err.find("this machine can give ") != std::string::npos, ended.err);
  CHECK(ended.err.find("not enough memory") == ended.err.rfind("not enough memory"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
}

TEST_CASE(
    "under a limit on address space a trainer that fits it trains, and another is refused by the numbers") {
  const Folder folder;
  const auto limited = [&](int hidden) {
    const Case two{"mlp",
                   {{"type", "mlp"}, {"hidden_sizes", {hidden, hidden}}},
                   {{"type", "synthetic"}, {"samples", 600}},
                   {{"global_batch_size", 64}},
                   2,
                   1};
    // Small stacks: those of dtrun's threads are as many as the machine has processors.
    std::vector<std::string> argv{"/bin/sh", "-c", "ulimit -s 1024; ulimit -v 180000; exec \"$@\"", "sh"};
    for (const std::string& word : job(two, folder.path())) argv.push_back(word);
    return run(argv);
  };
  const Ended small = limited(256);
  CHECK_MESSAGE(small.exit_code == 0, small.err);
  std::filesystem::remove_all(folder / "out");
  const Ended large = limited(4096);
  CHECK(large.exit_code == 78);
  CHECK_MESSAGE(contains(large.err, "not enough memory: the worker needs "), large.err);
  CHECK_MESSAGE(contains(large.err, " (175 MiB for each process, ulimit -v). "), large.err);
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
}

// All microbatches of a step are in memory at once: 290 MB of one worker, 170 of each of two.
TEST_CASE(
    "a job whose microbatches do not fit the workers that are left waits for another, and loses nothing" *
    doctest::test_suite("cgroup")) {
  constexpr int kSteps = 8;
  const MemoryGroup groups[] = {MemoryGroup(240'000'000), MemoryGroup(240'000'000)};
  if (!groups[0].there()) return skip("no control group can be made here");
  const Folder folder;
  const Case one{"resnet",
                 {{"type", "resnet"}, {"stem", "cifar"}, {"depths", {1, 1}}, {"embedding_size", 32}},
                 {{"type", "synthetic"}, {"samples", 600}, {"shape", {3, 32, 32}}},
                 {{"max_steps", kSteps},
                  {"global_batch_size", 128},
                  {"micro_batch_size", 16},
                  {"batch_norm_group", 0},
                  {"eval_steps", 0},
                  {"save_steps", 0}}};
  const Ended calm = run(job(one, folder.path()));
  REQUIRE_MESSAGE(calm.exit_code == 0, calm.err);

  const std::string port = std::to_string(free_port());
  Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", port});
  REQUIRE(eventually([&] { return is_listening(std::stoi(port)); }));
  const Site site;
  const auto node = [&](int rank) {
    return std::make_unique<Process>(
        groups[rank].with({site.dtrun(), "--nnodes", "1:2", "--node_rank", std::to_string(rank),
                           "--rdzv_endpoint", "127.0.0.1:" + port, "--rdzv_id", "memory", "--nproc_per_node",
                           "1", "--lanes", "1", "--max_restarts", "1", (folder / "job.json").string(),
                           "output_dir=" + (folder / "waited").string()}),
        site.environment({{.point = "updated", .rank = 0, .count = 3, .once = "held", .after = {"on"}}}));
  };
  const auto waits = [](const Process& agent) {
    return contains(agent.err(), "does not fit its memory, which is enough from 2 workers on: waiting for");
  };
  const auto first = node(0);
  REQUIRE_MESSAGE(eventually([&] { return waits(*first); }), first->err());
  const auto second = node(1);
  REQUIRE_MESSAGE(eventually([&] { return std::filesystem::exists(site.mark("held")); }),
                  first->err() << second->err());
  kill(only_worker(*second), SIGKILL);
  write_text(site.mark("on"), "");
  const Ended ended = first->end();
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(second->end().exit_code == 0);
  CHECK(waits(*second));
  CHECK_MESSAGE(contains(ended.err, "going on at step "), ended.err);
  CHECK_FALSE(contains(ended.err, "with 1 worker on 1 node"));
  CHECK(model(folder / "waited") == model(folder / "out"));
}

}  // namespace dtrun::memory_test
