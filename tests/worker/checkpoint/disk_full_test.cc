// What cannot be written in full: checkpoints, models and metrics.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/small_files.h"
#include "tests/worker/checkpoint/program_example.h"
#include "worker/base/error.h"
#include "worker/checkpoint/background_saver.h"
#include "worker/checkpoint/layout.h"
#include "worker/metrics/metrics.h"

namespace dtrun::worker::disk_full_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::read_text;
using dtrun::test::SmallFiles;

namespace fs = std::filesystem;

template <typename Action>
std::string no_room(Action action) {
  try {
    action();
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitIo);
    return error.what();
  }
  return "nothing thrown";
}

int entries(const fs::path& directory) {
  return static_cast<int>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST_CASE(
    "a checkpoint that cannot be written in full leaves the older ones as they were, and nothing else") {
  const Folder output;
  save_checkpoint(output.path(), kProgram, example_state(100), 1);
  for (rlim_t limit : {0, 10, 300, 400}) {
    const SmallFiles small(limit);
    const std::string message =
        no_room([&] { save_checkpoint(output.path(), kProgram, example_state(200), 1); });
    CHECK_MESSAGE(contains(message, "cannot write " + output.path().string()), message);
  }
  CHECK(entries(output.path() / "checkpoints") == 1);
  CHECK(same(*load_newest(output.path(), kProgram, nullptr), example_state(100)));
}

TEST_CASE("a checkpoint that failed in the background is told of without another one being saved") {
  const Folder output;
  BackgroundSaver saver(output.path(), kProgram, 1);
  saver.check();
  const SmallFiles small(10);
  const TrainState state = example_state(100);
  saver.save(state);
  const test::Patience patience(std::chrono::seconds(60));
  std::string message;
  while (message.empty() && !patience.is_over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    try {
      saver.check();
    } catch (const WorkerError& error) {
      message = error.what();
    }
  }
  CHECK_MESSAGE(contains(message, "cannot write " + output.path().string()), message);
  saver.wait();  // told once
}

TEST_CASE("a model that cannot be written in full leaves the older one as it was") {
  const Folder output;
  const fs::path path = save_model(output.path(), kProgram, example_state(1).parameters);
  const std::string before = read_text(path);
  {
    const SmallFiles small(100);
    CHECK(contains(no_room([&] { save_model(output.path(), kProgram, example_state(2).parameters); }),
                   "cannot write"));
  }
  CHECK(read_text(path) == before);
  CHECK(entries(output.path()) == 1);
}

TEST_CASE(
    "where there is no room the oldest checkpoint goes first if it would go anyway, and one always stays") {
  const Folder output;
  for (const std::int64_t step : {100, 200, 300})
    save_checkpoint(output.path(), kProgram, example_state(step), 3);
  const SmallFiles small(300);
  CHECK(contains(no_room([&] { save_checkpoint(output.path(), kProgram, example_state(400), 4); }),
                 "cannot write"));
  CHECK(list_checkpoints(output.path()).size() == 3);
  CHECK(contains(no_room([&] { save_checkpoint(output.path(), kProgram, example_state(400), 3); }),
                 "cannot write"));
  CHECK(list_checkpoints(output.path()).size() == 2);
  for (const int keep : {2, 1, 1, 1})
    CHECK(contains(no_room([&] { save_checkpoint(output.path(), kProgram, example_state(400), keep); }),
                   "cannot write"));
  CHECK(list_checkpoints(output.path()).size() == 1);
  CHECK(same(*load_newest(output.path(), kProgram, nullptr), example_state(300)));
}

TEST_CASE("metrics that find no room wait for it, and none is lost or torn") {
  const Folder output;
  const fs::path path = output.path() / "metrics.jsonl";
  std::vector<std::string> notices;
  const auto lines = [&] {
    const std::string text = read_text(path);
    return std::count(text.begin(), text.end(), '\n');
  };
  {
    MetricsWriter metrics(output.path(), 0, [&](const std::string& text) { notices.push_back(text); });
    metrics.write(EvalMetrics{1, 0.5, 0.9});
    {
      const SmallFiles small(fs::file_size(path) + 10);
      for (std::int64_t step = 2; step <= 4; ++step) metrics.write(EvalMetrics{step, 0.4, 0.9});
      CHECK(lines() == 1);
    }
    CHECK(notices.size() == 1);
    CHECK_MESSAGE(contains(notices[0], "cannot write " + path.string()), notices[0]);
    metrics.write(EvalMetrics{5, 0.4, 0.9});
    CHECK(lines() == 5);
    CHECK(notices.back() == path.string() + " can be written again");
    const SmallFiles small(fs::file_size(path) + 10);
    metrics.write(EvalMetrics{6, 0.4, 0.9});
  }
  CHECK(notices.back() == path.string() + " lacks its last 1 line");
  const std::string torn = read_text(path);
  CHECK(torn.back() != '\n');
  std::istringstream in(torn);
  std::int64_t step = 0;
  for (std::string line; std::getline(in, line) && !in.eof();)
    CHECK(nlohmann::json::parse(line)["step"] == ++step);
  CHECK(step == 5);
  { const MetricsWriter next(output.path(), 10, nullptr); }
  CHECK(read_text(path) == torn.substr(0, torn.rfind('\n') + 1));
}

}  // namespace
}  // namespace dtrun::worker::disk_full_test
