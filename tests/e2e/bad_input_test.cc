// Bad input: a message that names the thing, the contract's exit code, and nothing touched.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/e2e/stop_points.h"
#include "tests/e2e/training.h"

namespace dtrun::bad_input_test {

using namespace dtrun::test;

namespace {

const std::filesystem::path kData = "/usr/share/datasets/fashion-mnist";

void refuses(const std::vector<std::string>& argv, int exit_code, const std::vector<std::string>& words) {
  const Ended ended = run(argv);
  CAPTURE(ended.err);
  CHECK(ended.exit_code == exit_code);
  for (const std::string& word : words) CHECK_MESSAGE(ended.err.find(word) != std::string::npos, word);
}

std::vector<std::string> job(const std::filesystem::path& output, const std::vector<std::string>& overrides) {
  return training(standalone(2), output, joined({"train.max_steps=3"}, overrides));
}

// A copy of the data set of which a test may damage a file.
void copy_data(const std::filesystem::path& to) {
  std::filesystem::create_directories(to);
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    std::filesystem::copy_file(entry.path(), to / entry.path().filename());
  }
}

}  // namespace

TEST_CASE("an unknown option ends with 64 and the nearest name") {
  refuses({kDtrun, "--nprok_per_node", "2", kConfig}, 64, {"--nprok_per_node", "--nproc_per_node"});
}

TEST_CASE("faults of a config end with 78, name the pointer, and leave the output directory alone") {
  Folder directory;
  refuses(job(directory / "out", {"train.learning_rat=1"}), 78, {"learning_rat", "learning_rate"});
  refuses(job(directory / "out", {"train.seed=\"x\""}), 78, {"/train/seed"});
  refuses(job(directory / "out", {"train.micro_batch_size=48"}), 78, {"/train/micro_batch_size", "48"});
  refuses(job(directory / "out", {"train.num_train_epochs=0"}), 78, {"/train/num_train_epochs"});
  CHECK_FALSE(std::filesystem::exists(directory / "out"));
}

// Said once, and no worker was started for it.
void refuses_at_once(const std::vector<std::string>& argv, int exit_code, const std::string& words) {
  const Ended ended = run(argv);
  CAPTURE(ended.err);
  CHECK(ended.exit_code == exit_code);
  CHECK(std::ranges::count(ended.err, '\n') == 1);
  CHECK(ended.err.find(words) != std::string::npos);
  CHECK(ended.out == "");
}

TEST_CASE("what only the model and the output directory know of a config is told before workers start") {
  const Folder directory;
  refuses_at_once({kDtrun, "--nproc_per_node", "2", DTRUN_SOURCE_DIR "/configs/gpt2_tiny_text.json",
                   "output_dir=" + (directory / "out").string(), "data.path=" DTRUN_SOURCE_DIR "/README.md",
                   "data.sequence_length=64", "model.n_positions=32"},
                  78, "the data does not fit the model: its samples have 64");
  refuses_at_once(job(directory / "out", {"train.dataloader_drop_last=true", "train.global_batch_size=65536",
                                          "train.micro_batch_size=16"}),
                  78, "/train/dataloader_drop_last leaves nothing");
  refuses_at_once(job(directory / "out", {"train.distill_from=" + (directory / "nobody").string()}), 66,
                  "/train/distill_from: " + (directory / "nobody").string());
  CHECK_FALSE(std::filesystem::exists(directory / "out"));
  std::ofstream(directory / "file") << "x";
  refuses_at_once(job(directory / "file" / "out", {}), 73, "file: is no directory");
  REQUIRE(run(job(directory / "out", {})).exit_code == 0);
  refuses_at_once(job(directory / "out", {"model.type=mlp"}), 78, "belongs to another job: /");
  const std::string newest = (directory / "out/checkpoints/step-00000003").string();
  refuses_at_once(job(directory / "other", {"model.type=mlp", "train.resume_from_checkpoint=" + newest}), 78,
                  "belongs to another job: /");
  refuses_at_once(job(directory / "out", {"train.resume_from_checkpoint=none"}), 78, "already holds a model");
}

TEST_CASE("a fault that all ranks find is said once, with the ranks") {
  const std::string fault = "training diverged";
  const Site site;
  std::vector<Stop> stops;
  for (int rank = 0; rank < 2; ++rank)
    stops.push_back(
        {.point = "exchanged", .rank = rank, .once = "there" + std::to_string(rank), .after = {"on"}});
  Process job(site.command(standalone(2), {"train.learning_rate=1e6"}), site.environment(stops));
  REQUIRE(eventually([&] {
    return std::filesystem::exists(site.mark("there0")) && std::filesystem::exists(site.mark("there1"));
  }));
  // Their agent would tell one to stop before it has found it, too.
  const std::vector<pid_t> workers = workers_of(job, 2);
  job.signal(SIGSTOP);
  write_text(site.mark("on"), "");
  CHECK(eventually([&] { return !is_alive(workers[0]) && !is_alive(workers[1]); }));
  job.signal(SIGCONT);
  const Ended ended = job.end();
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 65);
  CHECK(contains(ended.err, "  error of ranks 0-1, the same for each:\n    " + fault));
  CHECK(ended.err.find(fault) == ended.err.rfind(fault));
}

TEST_CASE("a limit on the size of files that shared memory runs into is named, and is no bug in dtrun") {
  const Folder directory;
  std::vector<std::string> words{"/bin/sh", "-c", "ulimit -f 10; exec \"$@\"", "sh"};
  for (const std::string& word : job(directory / "out", {})) words.push_back(word);
  const Ended ended = run(words);
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 71);
  CHECK(ended.err.find("size of files holds too (ulimit -f)") != std::string::npos);
}

TEST_CASE("missing, truncated and corrupt data end with 66 and name the file") {
  Folder directory;
  refuses(job(directory / "out", {"data.path=/nonexistent"}), 66, {"/nonexistent"});

  copy_data(directory / "cut");
  std::filesystem::resize_file(directory / "cut/train-images-idx3-ubyte.gz", 100000);
  refuses(job(directory / "out", {"data.path=" + (directory / "cut").string()}), 66,
          {"train-images-idx3-ubyte.gz"});

  copy_data(directory / "bad");
  std::ofstream(directory / "bad/train-labels-idx1-ubyte.gz", std::ios::binary)
      << "this is no gzip file at all";
  refuses(job(directory / "out", {"data.path=" + (directory / "bad").string()}), 66,
          {"train-labels-idx1-ubyte.gz"});
}

TEST_CASE("an output directory that cannot be made ends with 73 and its name") {
  Folder directory;
  std::ofstream(directory / "file") << "x";
  refuses(job(directory / "file" / "out", {}), 73, {(directory / "file").string()});
}

TEST_CASE("a damaged checkpoint is passed over, by name, for the one before it") {
  Folder directory;
  const std::vector<std::string> saves{"train.save_steps=2", "train.max_steps=5"};
  const std::vector<std::string> argv = job(directory / "out", saves);
  REQUIRE(run(argv).exit_code == 0);
  const std::string model = read_if_there(directory / "out/model.safetensors");
  const std::filesystem::path newest = directory / "out/checkpoints/step-00000005/model.safetensors";
  REQUIRE(std::filesystem::exists(newest));
  std::fstream(newest, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).write("garbage", 7);
  std::filesystem::remove(directory / "out/model.safetensors");
  const Ended again = run(argv);
  CHECK_MESSAGE(again.exit_code == 0, again.err);
  CHECK_MESSAGE(again.err.find("step-00000005") != std::string::npos, again.err);
  CHECK(read_if_there(directory / "out/model.safetensors") == model);

  const std::filesystem::path state = directory / "out/checkpoints/step-00000005/trainer_state.json";
  std::filesystem::remove(state);
  std::filesystem::create_directory(state);
  std::filesystem::remove(directory / "out/model.safetensors");
  const Ended third = run(argv);
  CHECK_MESSAGE(third.exit_code == 0, third.err);
  CHECK_MESSAGE(third.err.find("trainer_state.json: cannot be read: Is a directory") != std::string::npos,
                third.err);
  CHECK(read_if_there(directory / "out/model.safetensors") == model);
}

TEST_CASE("an endpoint that does not resolve ends with 69 and the name") {
  refuses({kDtrun, "--nnodes", "2", "--rdzv_endpoint", "nosuch.invalid:29400", "--rdzv_conf",
           "join_timeout=" + std::to_string(soon(std::chrono::seconds(3)).count()), "--", "true"},
          69, {"nosuch.invalid", "it is from --rdzv_endpoint"});
}

TEST_CASE("an endpoint where something else listens ends with 69 and says so") {
  const int fd = bound_to(0);
  REQUIRE(listen(fd, 64) == 0);
  const std::string endpoint = "127.0.0.1:" + std::to_string(port_of(fd));
  refuses({kDtrun, "--nnodes", "2", "--rdzv_endpoint", endpoint, "--", "true"}, 69,
          {endpoint, "something else"});
  close(fd);
}

TEST_CASE("too few nodes in time end with 69 and the count") {
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  refuses({kDtrun, "--nnodes", "2", "--rdzv_endpoint", endpoint, "--rdzv_conf",
           "join_timeout=" + std::to_string(soon(std::chrono::seconds(1)).count()), "--", "true"},
          69, {"1 of 2"});
}

TEST_CASE("two agents with different configs under one run id: the second is refused with the difference") {
  Folder directory;
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const auto node = [&](const std::string& seed) {
    return std::vector<std::string>{kDtrun,
                                    "--nnodes",
                                    "2",
                                    "--rdzv_endpoint",
                                    endpoint,
                                    "--rdzv_id",
                                    "r",
                                    kConfig,
                                    "output_dir=" + (directory / "out").string(),
                                    "train.seed=" + seed};
  };
  Process first(node("1"));
  REQUIRE(first.wait_for_err("joined 1 of 2"));
  const Ended second = run(node("2"));
  CAPTURE(second.err);
  CHECK(second.exit_code == 78);
  CHECK(second.err.find("/train/seed") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(directory / "out"));
}

}  // namespace dtrun::bad_input_test
