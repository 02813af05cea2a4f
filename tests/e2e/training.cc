#include "tests/e2e/training.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <stdexcept>

#include "tests/support/small_images.h"

namespace dtrun::test {
namespace {

// By a name that is new: entries that have namespaces of their own have the same process ids.
std::filesystem::path new_folder() {
  std::string name = DTRUN_BIN_DIR "/../tests/programs-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  return name;
}

}  // namespace

Programs::Programs(const std::filesystem::path& worker) : path_(new_folder()) {
  std::filesystem::create_hard_link(kDtrun, path_ / "dtrun");
  std::filesystem::create_hard_link(worker, path_ / "dtrun-worker");
}

Programs::~Programs() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> small_images() {
  static const Folder folder;
  static const bool written = [] {
    write_idx(folder.path(), "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 1100, 1);
    write_idx(folder.path(), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 250, 2);
    return true;
  }();
  REQUIRE(written);
  // Learned at the config's rate they would soon give gradients of denormal numbers, which take a processor
  // ten times as long. A rate that stays makes a run of any steps the beginning of each longer one.
  return {"data.path=" + folder.path().string(), "model.channels=[4, 50]",
          "train.global_batch_size=32",          "train.micro_batch_size=8",
          "train.learning_rate=0.005",           "train.lr_scheduler_type=constant"};
}

std::vector<std::string> training_on_real_images(const std::vector<std::string>& options,
                                                 const std::filesystem::path& output,
                                                 const std::vector<std::string>& overrides) {
  std::vector<std::string> argv = joined({kDtrun}, options);
  argv.insert(argv.end(),
              {kConfig, "output_dir=" + output.string(), "train.eval_steps=0", "train.logging_steps=1"});
  return joined(argv, overrides);
}

std::vector<std::string> training(const std::vector<std::string>& options,
                                  const std::filesystem::path& output,
                                  const std::vector<std::string>& overrides) {
  std::vector<std::string> all = small_images();
  const auto is_of_model = [](const std::string& one) { return one.starts_with("model."); };
  if (std::ranges::any_of(overrides, is_of_model)) std::erase_if(all, is_of_model);
  return training_on_real_images(options, output, joined(all, overrides));
}

std::vector<std::string> resting(std::vector<std::string> argv, std::chrono::microseconds time) {
  static const Programs programs(DTRUN_BIN_DIR "/../tests/stop_point_worker");
  argv.front() = programs.dtrun();
  return joined({"env", "DTRUN_TEST_REST=" + std::to_string(time.count())}, argv);
}

std::vector<std::string> endless_training(const std::vector<std::string>& options,
                                          const std::filesystem::path& output,
                                          const std::vector<std::string>& overrides) {
  return resting(training(options, output, joined({kEndless}, overrides)));
}

std::vector<std::string> standalone(int workers, int lanes) {
  return {"--standalone", "--nproc_per_node", std::to_string(workers), "--lanes", std::to_string(lanes)};
}

std::string model(const std::filesystem::path& output) {
  std::string bytes = read_if_there(output / "model.safetensors");
  REQUIRE_MESSAGE(bytes.size() > 21840 * sizeof(float), output.string());
  return bytes;
}

const std::string& quiet_model(int steps, const std::vector<std::string>& overrides) {
  static std::map<std::pair<int, std::vector<std::string>>, std::string> known;
  std::string& bytes = known[{steps, overrides}];
  if (bytes.empty()) {
    const Folder directory;
    Process alone(training(
        standalone(1), directory / "out",
        joined(overrides, {"train.max_steps=" + std::to_string(steps), "train.save_steps=1000000"})));
    const Ended ended = alone.end(std::chrono::minutes(5));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    bytes = model(directory / "out");
  }
  return bytes;
}

std::string newest_line(const std::filesystem::path& output) {
  std::ifstream file(output / "metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return "";
  // A worker writes a few other lines behind it, each of less than 1 kB.
  constexpr std::streamoff kTail = 8192;
  file.seekg(std::max<std::streamoff>(file.tellg() - kTail, 0));
  const std::string tail(std::istreambuf_iterator<char>(file), {});
  const std::size_t whole = tail.rfind('\n');
  const std::size_t at = whole == std::string::npos ? whole : tail.rfind(R"({"event":"train",)", whole);
  return at == std::string::npos ? "" : tail.substr(at, tail.find('\n', at) - at);
}

long steps_done(const std::filesystem::path& output) {
  const std::string line = newest_line(output), before = R"("step":)";
  return line.empty() ? 0 : std::atol(line.c_str() + line.find(before) + before.size());
}

bool trains(const std::filesystem::path& output, long steps) {
  return eventually([&] { return steps_done(output) >= steps; });
}

bool has_checkpoint(const std::filesystem::path& output) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(output / "checkpoints", error);
  return std::any_of(begin(entries), end(entries),
                     [](const auto& entry) { return entry.path().filename().string().starts_with("step-"); });
}

std::pair<int, std::string> newest_checkpoint(const std::filesystem::path& output) {
  std::filesystem::path newest;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(output / "checkpoints", none))
    if (entry.path().filename().string().starts_with("step-")) newest = std::max(newest, entry.path());
  if (newest.empty()) return {};
  return {std::stoi(newest.filename().string().substr(5)), read_if_there(newest / "model.safetensors")};
}

void end_as_calm(const std::vector<Process*>& agents, const std::vector<std::filesystem::path>& outputs,
                 const std::vector<std::string>& overrides) {
  long done = 0;
  for (const std::filesystem::path& output : outputs) done = std::max(done, steps_done(output));
  for (Process* const agent : agents) agent->signal(SIGTERM);
  for (Process* const agent : agents) {
    const Ended ended = agent->end();
    CHECK_MESSAGE(ended.exit_code == 128 + SIGTERM, ended.err);
  }
  std::pair<int, std::string> newest;
  for (const std::filesystem::path& output : outputs) newest = std::max(newest, newest_checkpoint(output));
  CHECK(newest.first >= done);
  REQUIRE(newest.first > 0);
  CHECK(newest.second == quiet_model(newest.first, overrides));
}

std::vector<pid_t> workers_of(const Process& agent, std::size_t count) {
  const std::vector<pid_t> workers = children_of(agent.pid(), "dtrun-worker");
  REQUIRE_MESSAGE(workers.size() == count, agent.err());
  return workers;
}

pid_t only_worker(const Process& agent) { return workers_of(agent, 1)[0]; }

std::string lost_after_two_seconds() {
  soon(std::chrono::seconds(2));
  return "keep_alive_interval=1,keep_alive_max_attempt=2";
}

nlohmann::json conv3x3(int channels, int stride) {
  return {{"Conv2d",
           {{"out_channels", channels},
            {"kernel_size", 3},
            {"stride", stride},
            {"padding", 1},
            {"bias", false}}}};
}

}  // namespace dtrun::test
