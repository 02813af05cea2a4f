#include "worker/checkpoint/checkpoint.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/checkpoint/program_example.h"
#include "worker/base/error.h"
#include "worker/checkpoint/background_saver.h"
#include "worker/checkpoint/durable.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/state_text.h"

namespace dtrun::worker::checkpoint_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::read_text;
using dtrun::test::write_text;

namespace fs = std::filesystem;

// An output directory, and the notices about it.
struct Output {
  Folder directory;
  std::vector<std::string> notices;

  fs::path path() const { return directory.path(); }
  fs::path save(std::int64_t step, int keep = 0) {
    return save_checkpoint(path(), kProgram, example_state(step), keep);
  }
  Notice notice() {
    return [this](const std::string& text) { notices.push_back(text); };
  }
  std::optional<TrainState> load() { return load_newest(path(), kProgram, notice()); }
  // Names in checkpoints/, in order.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path() / "checkpoints")) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
};

using Names = std::vector<std::string>;

// Exit code and message of what `action` throws.
template <typename Action>
std::pair<int, std::string> thrown(Action action) {
  try {
    action();
  } catch (const WorkerError& error) {
    return {error.exit_code(), error.what()};
  }
  return {0, "nothing thrown"};
}

TEST_CASE("a checkpoint brings back all of the state") {
  Output output;
  const fs::path directory = output.save(500);
  CHECK(directory == output.path() / "checkpoints" / "step-00000500");
  CHECK(same(load_checkpoint(directory, kProgram), example_state(500)));
  CHECK(same(*output.load(), example_state(500)));
  CHECK(newest_step(output.path(), output.notice()) == 500);
  CHECK(output.notices.empty());
  CHECK(output.names() == Names{"step-00000500"});
}

TEST_CASE("a parameter's name may be the end of another's, as in a ResNet") {
  const Folder directory;
  Program program = kProgram;
  program.parameters[2].name = "layer1.0.conv1.weight";
  const fs::path saved = save_checkpoint(directory.path(), program, example_state(500), 0);
  CHECK(same(load_checkpoint(saved, program), example_state(500)));
}

TEST_CASE("what the evaluations have shown comes back to the last bit, and need not be there") {
  Output output;
  TrainState state = example_state(500);
  state.evaluations = {.evaluated_step = 500,
                       .best_step = 300,
                       .best_loss = 0.1 + 0.2,
                       .best_accuracy = 1.0 / 3,
                       .without_improvement = 2};
  const fs::path directory = save_checkpoint(output.path(), kProgram, state, 0);
  CHECK(load_checkpoint(directory, kProgram).evaluations == state.evaluations);
  CHECK(load_checkpoint(output.save(600), kProgram).evaluations == EvaluationRecord());
  const auto with = [](const std::string& evaluations) {
    return parse_state(R"({"format_version": 1, "step": 5, "config": {}, "evaluations": )" + evaluations +
                       "}");
  };
  const std::string good =
      R"({"evaluated_step": 5, "best_step": 3, "best_loss": null, "best_accuracy": 1, "without_improvement": 1})";
  REQUIRE(with(good).ok());
  CHECK(std::isnan(with(good).value().evaluations.best_loss));
  CHECK(with(good).value().evaluations.best_step == 3);
  for (const char* bad : {"3", "{}", R"({"evaluated_step": "x"})"})
    CHECK(with(bad).status().exit_code() == kExitNoInput);
}

TEST_CASE("what computed it comes back, and need not be there") {
  Output output;
  TrainState state = example_state(500);
  state.device = "NVIDIA \"H200\", 132 SMs";
  CHECK(load_checkpoint(save_checkpoint(output.path(), kProgram, state, 0), kProgram).device == state.device);
  CHECK(load_checkpoint(output.save(600), kProgram).device.empty());
  CHECK(parse_state(R"({"format_version": 1, "step": 5, "config": {}, "device": 3})").status().exit_code() ==
        kExitNoInput);
}

TEST_CASE("the best checkpoint stays whatever the limit, and counts as one of it") {
  for (const int keep : {1, 2, 3}) {
    CAPTURE(keep);
    Output output;
    for (std::int64_t step = 100; step <= 600; step += 100) {
      TrainState state = example_state(step);
      state.evaluations.best_step = std::min<std::int64_t>(step, 200);
      save_checkpoint(output.path(), kProgram, state, keep);
    }
    const Names wanted = keep < 3 ? Names{"step-00000200", "step-00000600"}
                                  : Names{"step-00000200", "step-00000500", "step-00000600"};
    CHECK(output.names() == wanted);
  }
}

TEST_CASE("a config text that is no canonical JSON comes back as it was") {
  Output output;
  for (const std::string& text : {std::string("{\"a\":1}"), std::string("not json"), std::string()}) {
    TrainState state = example_state(1);
    state.config_json = text;
    save_checkpoint(output.path(), kProgram, state, 0);
    CHECK(output.load()->config_json == text);
  }
}

TEST_CASE("there is nothing to load where nothing was saved") {
  Output output;
  CHECK_FALSE(output.load().has_value());
  CHECK_FALSE(newest_step(output.path() / "nowhere", output.notice()).has_value());
  fs::create_directories(output.path() / "checkpoints" / "step-five");
  CHECK_FALSE(output.load().has_value());
  CHECK(output.notices.empty());
}

TEST_CASE("the newest checkpoint is the one of the highest step, beyond eight digits too") {
  Output output;
  for (std::int64_t step : {999, 1000, 123456789}) output.save(step);
  CHECK(output.load()->step == 123456789);
}

TEST_CASE("a name with up to 15 digits is a step's, a longer one is not") {
  Output output;
  output.save(999'999'999'999'999);
  fs::create_directory(output.path() / "checkpoints" / "step-1000000000000000");
  CHECK(output.load()->step == 999'999'999'999'999);
  CHECK(output.notices.empty());
}

TEST_CASE("only the newest ones are kept, and newer ones that were passed over are left alone") {
  Output output;
  for (std::int64_t step : {100, 200, 300, 400}) output.save(step, 2);
  CHECK(output.names() == Names{"step-00000300", "step-00000400"});
  output.save(350, 1);
  CHECK(output.names() == Names{"step-00000350", "step-00000400"});
}

TEST_CASE("a checkpoint of the same step is replaced, good or damaged") {
  Output output;
  const fs::path directory = output.save(500);
  write_text(directory / "model.safetensors", "damaged");
  TrainState other = example_state(500);
  other.parameters[0] = 77;
  save_checkpoint(output.path(), kProgram, other, 0);
  CHECK(output.load()->parameters[0] == 77);
  output.save(500);
  CHECK(same(*output.load(), example_state(500)));
  CHECK(output.names() == Names{"step-00000500"});
}

TEST_CASE("one flipped bit in any file of a checkpoint is noticed, and the one before is used") {
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "trainer_state.json"}) {
    Output output;
    output.save(100);
    const fs::path damaged = output.save(200) / file;
    std::string content = read_text(damaged);
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
    write_text(damaged, content);
    CHECK(same(*output.load(), example_state(100)));
    REQUIRE(output.notices.size() == 1);
    CHECK_MESSAGE(
        contains(output.notices[0], "checkpoint step-00000200 passed over: " + damaged.string() +
                                        ": its checksum differs from manifest.json: damaged or changed"),
        output.notices[0]);
    CHECK(newest_step(output.path(), output.notice()) == 100);
  }
}

TEST_CASE("a missing or truncated file is named") {
  Output output;
  const fs::path directory = output.save(100);
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "trainer_state.json", "manifest.json"}) {
    const std::string content = read_text(directory / file);
    write_text(directory / file, content.substr(0, content.size() / 2));
    const auto fault = thrown([&] { load_checkpoint(directory, kProgram); });
    CHECK(fault.first == kExitNoInput);
    CHECK_MESSAGE(contains(fault.second, (directory / file).string()), fault.second);
    fs::remove(directory / file);
    CHECK(thrown([&] { load_checkpoint(directory, kProgram); }).second ==
          (directory / file).string() + ": is missing");
    write_text(directory / file, content);
  }
  CHECK(same(load_checkpoint(directory, kProgram), example_state(100)));
}

TEST_CASE("a checkpoint directory that is not there is an input error") {
  const auto [code, message] = thrown([] { load_checkpoint("/nonexistent/step-1", kProgram); });
  CHECK(code == kExitNoInput);
  CHECK(contains(message, "/nonexistent/step-1: there is no such checkpoint directory"));
}

TEST_CASE("a checkpoint of another model is a config error, and is not passed over like a damaged one") {
  Output output;
  const fs::path directory = output.save(100);
  Program other = kProgram;
  other.parameters[2] = {"fc.weight", {2, 3}, 10, 6};
  const auto [code, message] = thrown([&] { load_checkpoint(directory, other); });
  CHECK(code == kExitConfig);
  CHECK(contains(message, "tensor \"fc.weight\" has shape [3,2], this model needs [2,3]"));
  CHECK(thrown([&] { load_newest(output.path(), other, output.notice()); }) == std::pair(code, message));
  CHECK(output.notices.empty());
  other.parameters[2].name = "fc2.weight";
  CHECK(contains(thrown([&] { load_checkpoint(directory, other); }).second, "has no tensor \"fc2.weight\""));
}

TEST_CASE("a checkpoint under another step's name is passed over") {
  Output output;
  fs::rename(output.save(100), output.path() / "checkpoints" / "step-00000300");
  CHECK_FALSE(output.load().has_value());
  REQUIRE(output.notices.size() == 1);
  CHECK(contains(output.notices[0], "is of step 100, not of the step in the directory's name"));
}

TEST_CASE("what a dead writer left is removed at the next save, what a living one holds is not") {
  Output output;
  const fs::path checkpoints = output.path() / "checkpoints";
  fs::create_directories(checkpoints / ".tmp-step-00000100-12345-1");
  write_text(checkpoints / ".tmp-step-00000100-12345-1" / "model.safetensors", "half");
  {
    const ScratchDirectory alive(checkpoints / ".tmp-step-00000200-12346-1");
    output.save(300);
    CHECK(output.names() == Names{".tmp-step-00000200-12346-1", "step-00000300"});
  }
  CHECK(output.names() == Names{"step-00000300"});
}

TEST_CASE("state vectors of the wrong length are a bug, and nothing is written") {
  Output output;
  TrainState state = example_state(1);
  state.optimizer[1].values.pop_back();
  CHECK(thrown([&] { save_checkpoint(output.path(), kProgram, state, 0); }).first == kExitSoftware);
  CHECK_FALSE(fs::exists(output.path() / "checkpoints"));
}

TEST_CASE("the final model appears whole under its name and nothing else stays behind") {
  Output output;
  write_text(output.path() / "model.safetensors", "an older one");
  write_text(output.path() / ".model.safetensors.tmp", "of a dead writer");
  const TrainState state = example_state(9);
  const fs::path path = save_model(output.path() / "new", kProgram, state.parameters);
  CHECK(path == output.path() / "new" / "model.safetensors");
  save_model(output.path(), kProgram, state.parameters);
  CHECK(read_text(output.path() / "model.safetensors") == read_text(path));
  CHECK_FALSE(fs::exists(output.path() / ".model.safetensors.tmp"));
  CHECK(contains(read_text(path), R"("__metadata__":{"format":"pt",)"));
}

TEST_CASE("an output directory that cannot be made or written is said by its name") {
  Output output;
  CHECK(check_output_dir(output.path() / "a" / "b").ok());
  CHECK(fs::is_empty(output.path() / "a" / "b" / "checkpoints"));
  write_text(output.path() / "file", "");
  const Status status = check_output_dir(output.path() / "file" / "x");
  CHECK(status.exit_code() == kExitCannotCreate);
  CHECK(contains(status.message(),
                 "cannot create " + (output.path() / "file" / "x").string() + ": Not a directory"));
  CHECK(check_output_dir("/proc/dtrun").exit_code() == kExitCannotCreate);
  CHECK(check_output_dir(output.path() / "file").exit_code() == kExitCannotCreate);
  const auto [code, message] =
      thrown([&] { save_checkpoint(output.path() / "file", kProgram, example_state(1), 0); });
  CHECK(code == kExitCannotCreate);
  CHECK(contains(message, "file/checkpoints: Not a directory"));
}

TEST_CASE("the background saver writes all that it is given, in order, and what it has when it ends") {
  Output output;
  const TrainState last = example_state(21);
  {
    BackgroundSaver saver(output.path(), kProgram, 3);
    TrainState state;
    for (std::int64_t step = 1; step <= 20; ++step) {
      saver.wait();
      state = example_state(step);
      saver.save(state);
    }
    saver.wait();
    CHECK(same(*output.load(), example_state(20)));
    saver.save(last);
  }
  CHECK(output.names() == Names{"step-00000019", "step-00000020", "step-00000021"});
  CHECK(same(*output.load(), last));
}

TEST_CASE("the background saver leaves a diverged state alone") {
  Output output;
  const TrainState good = example_state(1);
  TrainState bad = example_state(2);
  bad.parameters.back() = std::numeric_limits<float>::infinity();
  BackgroundSaver saver(output.path(), kProgram, 3);
  saver.save(good);
  saver.wait();
  saver.save(bad);
  saver.wait();
  CHECK(output.names() == Names{"step-00000001"});
}

TEST_CASE("the background saver tells a writer's failure once and goes on") {
  Output output;
  BackgroundSaver saver(output.path() / "sub", kProgram, 3);
  write_text(output.path() / "sub", "in the way");
  const TrainState first = example_state(1), second = example_state(2);
  saver.save(first);
  CHECK(thrown([&] { saver.wait(); }).first == kExitCannotCreate);
  fs::remove(output.path() / "sub");
  saver.save(second);
  saver.wait();
  CHECK(load_newest(output.path() / "sub", kProgram, nullptr)->step == 2);
}

}  // namespace
}  // namespace dtrun::worker::checkpoint_test
