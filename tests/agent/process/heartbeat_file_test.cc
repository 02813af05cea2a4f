#include "agent/process/heartbeat_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/folder.h"

namespace dtrun::heartbeat_file_test {

using namespace dtrun::agent;

namespace {

void write(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

// The report in a text, which must be one.
HeartbeatReport report(const std::string& text) {
  const auto found = heartbeat_report_in(text);
  REQUIRE_MESSAGE(found.ok(), found.status().message());
  REQUIRE(found.value().has_value());
  return *found.value();
}

std::string fault(const std::string& text) {
  const auto found = heartbeat_report_in(text);
  return found.ok() ? "" : found.status().message();
}

}  // namespace

TEST_CASE("JSON in the file is progress, by the names of the control socket or the short one") {
  const HeartbeatReport all = report(
      R"({"step": 12, "total": 900, "loss": 2.1, "samples_per_second": 88, "epoch": 1.5, "wait_s": 0.3, "mine": [1]})");
  CHECK(all.progress.phase() == training::Progress::TRAINING);
  CHECK(all.progress.step() == 12);
  CHECK(all.progress.total_steps() == 900);
  CHECK(all.progress.loss() == 2.1);
  CHECK(all.progress.samples_per_second() == 88);
  CHECK(all.progress.epoch() == 1.5);
  CHECK(all.waited == 0.3);
  CHECK_FALSE(all.waited_for_data.has_value());
  CHECK(report(R"({"step": 3, "total_steps": 5, "phase": "EVALUATING"})").progress.phase() ==
        training::Progress::EVALUATING);
  CHECK(report("{\"step\": 3}\n").progress.total_steps() == 0);
}

TEST_CASE("numbers that are none, as Python writes them, are left out, and the rest counts") {
  const HeartbeatReport nan =
      report(R"({"step": 7, "loss": NaN, "samples_per_second": -Infinity, "wait_s": NaN})");
  CHECK(nan.progress.step() == 7);
  CHECK_FALSE(nan.progress.has_loss());
  CHECK(nan.progress.samples_per_second() == 0);
  CHECK_FALSE(nan.waited.has_value());
  CHECK_FALSE(report(R"({"step": 7, "loss": "Infinity"})").progress.has_loss());
}

TEST_CASE("a file without an object is a touch, and an object that is no report is a fault that says why") {
  for (const char* text : {"", "\n", "1732580000.5\n", "beat", "[1, 2]"}) {
    const auto found = heartbeat_report_in(text);
    CHECK(found.ok());
    CHECK_FALSE(found.value().has_value());
  }
  CHECK(fault("{\"step\": 1").starts_with("it is no JSON object: {\"step\": 1"));
  CHECK(fault("{\"loss\": 1}") == "it has no \"step\"");
  CHECK(fault("{\"step\": NaN}") == "it has no \"step\"");
  CHECK(fault("{\"step\": -1}") == "\"step\" is negative");
  CHECK_FALSE(fault("{\"step\": \"soon\"}").empty());
  CHECK_FALSE(fault("{\"step\": 1e30}").empty());
  CHECK_FALSE(fault("{\"step\": {}}").empty());
  CHECK_FALSE(fault("{\"step\": 1, \"loss\": []}").empty());
  CHECK_FALSE(fault(std::string("{\0\xff", 3)).empty());
}

TEST_CASE("waits that a program adds up make the times of its steps, which only grow") {
  ReportedTimes times;
  const auto at = [&](std::int64_t step, double seconds, double waited, double data) {
    HeartbeatReport one{.progress = {}, .waited = waited, .waited_for_data = data};
    one.progress.set_step(step);
    return times.add(one, seconds);
  };
  CHECK_FALSE(at(10, 100, 1, 0.5).has_value());
  const StepTimes first = at(20, 110, 3, 1).value();
  CHECK(first.steps == 10);
  CHECK(first.wait_peers == 2);
  CHECK(first.data == 0.5);
  CHECK(first.math == 7.5);
  CHECK(at(2, 120, 0.1, 0).value() == first);  // it began anew
  const StepTimes second = at(4, 122, 0.6, 0).value();
  CHECK(second.steps == 12);
  CHECK(second.wait_peers == 2.5);
  CHECK(second.math == 9);
  CHECK(at(5, 122, 5, 0).value().math == 9);  // its clock is not ours
  CHECK_FALSE(ReportedTimes().add({}, 1).has_value());
}

TEST_CASE("each report is told once, written in place or renamed, and touches alone are none") {
  const test::Folder folder;
  const auto file = folder.path() / "beat";
  write(file, "");
  HeartbeatFile beats(file);
  CHECK_FALSE(beats.touches().has_value());
  CHECK_FALSE(beats.look().has_value());
  write(file, R"({"step": 1})");
  const auto first = beats.touches();
  CHECK(first.has_value());
  CHECK(beats.look().value().step() == 1);
  CHECK_FALSE(beats.look().has_value());
  write(folder.path() / "new", R"({"step": 2})");
  std::filesystem::rename(folder.path() / "new", file);
  CHECK(beats.touches() != first);
  CHECK(beats.look().value().step() == 2);
  std::filesystem::remove(file);
  CHECK_FALSE(beats.look().has_value());
  write(file, R"({"step": 3})");
  CHECK(beats.look().value().step() == 3);
  CHECK(beats.take_fault().empty());
}

TEST_CASE("a half written file is read again, and one that stays so is told once") {
  const test::Folder folder;
  const auto file = folder.path() / "beat";
  HeartbeatFile beats(file);
  write(file, R"({"step": 1, "lo)");
  CHECK_FALSE(beats.look().has_value());
  CHECK(beats.take_fault().empty());
  write(file, R"({"step": 1, "loss": 2})");
  CHECK(beats.look().value().loss() == 2);
  write(file, R"({"step": 2, "lo)");
  for (int look = 0; look < 3; ++look) CHECK_FALSE(beats.look().has_value());
  CHECK(beats.take_fault().starts_with("it is no JSON object"));
  write(file, "{\"loss\": 1}");
  for (int look = 0; look < 3; ++look) CHECK_FALSE(beats.look().has_value());
  CHECK(beats.take_fault().empty());
  write(file, R"({"step": 3})");
  CHECK(beats.look().value().step() == 3);
}

TEST_CASE("what is no file of a few bytes is not read") {
  const test::Folder folder;
  const auto file = folder.path() / "beat";
  HeartbeatFile beats(file);
  write(file, "{\"step\": 1, \"text\": \"" + std::string(1'000'000, 'x') + "\"}");
  for (int look = 0; look < 2; ++look) CHECK_FALSE(beats.look().has_value());
  CHECK(beats.take_fault() == "it is larger than 64 KiB");
  std::filesystem::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK_FALSE(beats.look().has_value());
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  CHECK_FALSE(beats.look().has_value());
}

}  // namespace dtrun::heartbeat_file_test
