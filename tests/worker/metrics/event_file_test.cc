#include "worker/metrics/event_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "proto/tensorboard.pb.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "worker/metrics/metrics.h"

namespace dtrun::worker::event_file_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::read_text;

void never(const std::string& text) { FAIL(text); }

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

std::vector<tensorboard::Event> events_of(const std::string& text) {
  std::vector<tensorboard::Event> events;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t size = 0;
    REQUIRE(at + sizeof size <= text.size());
    std::memcpy(&size, text.data() + at, sizeof size);
    const std::string record = text.substr(at, 8 + 4 + size + 4);
    const std::string bytes = record.substr(12, size);
    CHECK(record == tf_record(bytes));
    REQUIRE(events.emplace_back().ParseFromString(bytes));
    at += record.size();
  }
  return events;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

TEST_CASE("a record is that of TensorFlow's writer") {
  // The first one of an event file that tensorboard 2.21 wrote, wall time 1700000000.
  CHECK(hex(tf_record(std::string("\x09\0\0\0\x40\xFC\x54\xD9\x41\x1A\x0D", 11) + "brain.Event:2")) ==
        "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
}

TEST_CASE("a file begins with its version and a start, and holds each step's numbers") {
  const Folder output;
  {
    EventFile events(output.path(), 0, 7, never);
    events.add(5, 12.5, {{"train/loss", 0.5}, {"train/epoch", 0}});
  }
  const auto files = files_in(output.path() / "runs");
  REQUIRE(files.size() == 1);
  CHECK(files[0].filename().string().starts_with("events.out.tfevents."));
  CHECK(files[0].extension() == ".7");
  const auto events = events_of(read_text(files[0]));
  REQUIRE(events.size() == 3);
  CHECK(events[0].file_version() == "brain.Event:2");
  CHECK(events[1].session_log().status() == tensorboard::SessionLog::START);
  CHECK(events[1].step() == 0);
  CHECK(events[2].step() == 5);
  CHECK(events[2].wall_time() == 12.5);
  REQUIRE(events[2].summary().value_size() == 2);
  CHECK(events[2].summary().value(0).tag() == "train/loss");
  CHECK(events[2].summary().value(0).simple_value() == 0.5F);
  // A value of zero is there, too: without it TensorBoard would not show the point.
  CHECK(events[2].summary().value(1).has_simple_value());
}

TEST_CASE(
    "a generation that goes back has a file of its own, from whose first step on earlier points do not "
    "count") {
  const Folder output;
  for (const std::int64_t generation : {1, 2})
    EventFile(output.path(), generation == 1 ? 0 : 5, generation, never);
  const auto files = files_in(output.path() / "runs");
  REQUIRE(files.size() == 2);
  CHECK(events_of(read_text(files[0])).at(1).step() == 0);
  CHECK(events_of(read_text(files[1])).at(1).step() == 6);
}

TEST_CASE("the events have the lines' numbers and times, and no step twice") {
  const Folder output;
  const auto open = [&](std::int64_t step, std::int64_t generation) {
    return MetricsWriter(output.path(), step, never,
                         std::make_unique<EventFile>(output.path(), step, generation, never));
  };
  {
    MetricsWriter writer = open(0, 1);
    writer.write(
        TrainMetrics{.step = 5, .loss = 0.25, .world_size = 2, .generation = 1, .wait_gradients = 0.25});
    writer.write(EvalMetrics{.step = 5, .loss = 0.5, .accuracy = 0.75, .perplexity = 2});
    writer.write(SaveMetrics{.step = 5});
  }
  MetricsWriter writer = open(5, 2);
  writer.write(TrainMetrics{.step = 5, .loss = 0.25});
  writer.write(EvalMetrics{.step = 5});
  const auto files = files_in(output.path() / "runs");
  REQUIRE(files.size() == 2);
  CHECK(events_of(read_text(files[1])).size() == 2);
  const auto events = events_of(read_text(files[0]));
  REQUIRE(events.size() == 4);
  std::string shown;
  for (const auto& event : events)
    for (const auto& value : event.summary().value())
      shown += value.tag() + "=" + std::to_string(value.simple_value()).substr(0, 4) + " ";
  CHECK(shown ==
        "train/loss=0.25 train/learning_rate=0.00 train/grad_norm=0.00 train/epoch=0.00 "
        "perf/samples_per_second=0.00 "
        "perf/math=0.75 perf/wait_gradients=0.25 perf/wait_data=0.00 perf/other=0.00 job/world_size=2.00 "
        "job/generation=1.00 eval/loss=0.50 eval/accuracy=0.75 eval/perplexity=2.00 ");
  std::ostringstream time;
  time.precision(17);
  time << events[2].wall_time();
  CHECK(contains(read_text(output.path() / "metrics.jsonl"), time.str().substr(0, 12)));
}

}  // namespace
}  // namespace dtrun::worker::event_file_test
