// The refusals of `dtrun export`, which come before it writes anything.
#include "worker/checkpoint/export.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "worker/base/error.h"
#include "worker/checkpoint/safetensors.h"

namespace dtrun::worker {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::read_text;
using dtrun::test::write_text;

// A run's directory with a model whose metadata has this config.
void make_run(const std::filesystem::path& run, const std::string& config) {
  std::filesystem::create_directories(run);
  write_text(run / "model.safetensors", safetensors_header({}, {{"config", config}}));
  write_text(run / "config.json", "the run's own");
}

std::string refusal(const std::filesystem::path& run, const std::filesystem::path& to, int exit_code) {
  try {
    export_model(run, to);
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == exit_code);
    return error.what();
  }
  return "exported";
}

constexpr char kGood[] = R"({"model_type": "gpt2", "n_positions": 8})";

TEST_CASE("a model whose config is not what a run writes is refused with nothing written") {
  const Folder folder;
  for (const char* config : {"", "no JSON", "{\"n_positions\": ", "[]", "{}", "3"}) {
    CAPTURE(config);
    make_run(folder / "run", config);
    CHECK(contains(refusal(folder / "run", folder / "hub", kExitNoInput),
                   "its metadata \"config\" is not what"));
    CHECK_FALSE(std::filesystem::exists(folder / "hub"));
  }
  make_run(folder / "run", kGood);
  CHECK(refusal(folder / "run", folder / "hub", 0) == "exported");
  CHECK(contains(read_text(folder / "hub/config.json"), "\"n_positions\": 8"));
}

TEST_CASE("no run's directory is exported to: its config.json is its own") {
  const Folder folder;
  make_run(folder / "run", kGood);
  CHECK(contains(refusal(folder / "run", folder / "run", kExitCannotCreate), "is the directory of a run"));
  CHECK(contains(refusal(folder / "run", folder / "run" / "." / "", kExitCannotCreate),
                 "is the directory of a run"));
  CHECK(read_text(folder / "run/config.json") == "the run's own");

  std::filesystem::create_directories(folder / "other/checkpoints/step-00000003");
  CHECK(contains(refusal(folder / "run", folder / "other", kExitCannotCreate), "is the directory of a run"));
  CHECK(contains(refusal(folder / "run", folder / "other/checkpoints/step-00000003", 0), "exported"));

  write_text(folder / "metrics.jsonl", "");
  CHECK(contains(refusal(folder / "run", folder.path(), kExitCannotCreate), "is the directory of a run"));
  CHECK(refusal(folder / "run", folder / "hub", 0) == "exported");
  CHECK(refusal(folder / "run", folder / "hub", 0) == "exported");  // once more, over itself
}

}  // namespace
}  // namespace dtrun::worker
