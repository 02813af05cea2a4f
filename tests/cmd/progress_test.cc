// How a training is shown while it runs and when it is done: the real trainer on the real data.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::progress_test {

using namespace dtrun::test;

namespace {

using Words = std::vector<std::string>;

Ended train(const Words& options) {
  const Folder folder;
  Words words{kDtrun, "--standalone", "--lanes", "1"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {DTRUN_SOURCE_DIR "/configs/fashion_mnist_convnet.json",
                             "output_dir=" + (folder.path() / "out").string(), "train.max_steps=200",
                             "train.save_steps=0", "train.eval_steps=0"});
  const Ended job = Process(words).end();
  CHECK_MESSAGE(job.exit_code == 0, job.err);
  return job;
}

const std::regex kProgressLine("(^|\n)dtrun: step \\d+ of 200 ");

}  // namespace

TEST_CASE(
    "progress as JSON is all that is on standard output, an object a line, and nothing of it elsewhere") {
  const Ended done = train({"--progress", "json"});
  CHECK_FALSE(std::regex_search(done.err, kProgressLine));
  std::istringstream lines(done.out);
  std::vector<nlohmann::json> seen;
  for (std::string line; std::getline(lines, line);) seen.push_back(nlohmann::json::parse(line));
  REQUIRE(seen.size() >= 3);
  std::int64_t step = 0;
  bool rate = false;
  for (const auto& object : seen) {
    CHECK(object["event"] == "progress");
    CHECK(object["total_steps"] == 200);
    CHECK(object["world_size"] == 2);  // as the config says
    CHECK(object["generation"] == 1);
    CHECK(object["step"] >= step);
    step = object["step"];
    rate = rate || object["samples_per_second"] > 0;
  }
  CHECK(rate);
  CHECK(seen.back()["step"] == 200);
  CHECK(seen.back()["loss"].is_number());
  CHECK(seen.back()["epoch"] == doctest::Approx(200.0 / 469));
}

TEST_CASE(
    "off a terminal progress is plain lines on standard error, or silence, and the summary comes anyway") {
  const std::regex summary(
      "\ndtrun: done: 200 steps, test accuracy [0-9.]+ %, loss [0-9.]+, model in [^\n]*/model.safetensors\n"
      "  [0-9.]+ s in all, [0-9.]+ s of it training: [0-9,]+ samples/s, [0-9.]+ ms a step\n"
      "  of a step's time: [0-9]+ % math, [0-9]+ % waiting for gradients, [0-9]+ % waiting for data, "
      "[0-9]+ % other\n  goodput [0-9.]+ %: [^\n]*\n"
      "(  [^\n]* slows? the run [^\n]*\n)?$");  // on a busy machine
  const Ended plain = train({}), bar = train({"--progress", "bar"}), none = train({"--progress", "none"});
  CHECK(std::regex_search(plain.err, kProgressLine));
  CHECK(std::regex_search(bar.err, kProgressLine));
  CHECK_FALSE(std::regex_search(none.err, kProgressLine));
  for (const Ended& done : {plain, bar, none}) {
    CHECK(done.out == "");
    CHECK_MESSAGE(std::regex_search(done.err, summary), done.err);
    CHECK(done.err.find('\x1b') == std::string::npos);
  }
}

}  // namespace dtrun::progress_test
