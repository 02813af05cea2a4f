// Pods of the manifest that `dtrun kubernetes` writes, whose names DNS gives late, stale and twice, and which
// are deleted and come again with another address: the others never restart, and the model has the bytes of a
// run on one worker. DTRUN_ROUNDS is how many are deleted (4).
#include "tests/e2e/pods/pods.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "tests/e2e/training.h"
#include "tests/support/skip.h"

using namespace dtrun::test;

namespace {

constexpr int kPods = 3;

int rounds() {
  const char* const number = std::getenv("DTRUN_ROUNDS");
  return number != nullptr ? std::atoi(number) : 4;
}

std::vector<std::string> job(int steps) {
  return {"--nnodes",
          std::to_string(kPods),
          kConfig,
          "launch.nproc_per_node=1",
          "train.eval_steps=0",
          "train.logging_steps=1",
          "train.save_steps=20",
          "train.max_steps=" + std::to_string(steps)};
}

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Of the last training step that was written.
struct Mark {
  int step = 0, world_size = 0, generation = 0;
};
Mark last_step(const std::filesystem::path& output) {
  const std::string text = read_if_there(output / "metrics.jsonl");
  std::istringstream lines(
      text.substr(text.find('\n', text.size() - std::min<std::size_t>(text.size(), 4096)) + 1));
  Mark mark;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] == "train") mark = {event["step"], event["world_size"], event["generation"]};
  }
  return mark;
}

std::string said_by_all(const Pods& pods) {
  std::string text;
  for (int index = 0; index < kPods; ++index)
    text += "pod " + std::to_string(index) + ":\n" + pods.container(index).err();
  return text;
}

void ends_with_the_bytes_of_one_worker(Pods& pods, int steps) {
  constexpr auto kPatience = std::chrono::minutes(10);  // many rounds have many steps
  for (int index = 0; index < kPods; ++index)
    CHECK_MESSAGE(pods.container(index).wait(kPatience) == 0, said_by_all(pods));
  const Folder alone;
  Process one(training(standalone(1), alone / "out", {"train.max_steps=" + std::to_string(steps)}));
  REQUIRE_MESSAGE(one.wait(kPatience) == 0, one.err());
  CHECK(model(pods.output()) == model(alone / "out"));
}

}  // namespace

TEST_CASE("names that come late, stale and twice are waited for") {
  if (const std::string why = why_no_pods(); !why.empty()) return skip(why);
  constexpr int kSteps = 60;
  Pods pods(job(kSteps));
  std::vector<std::string> addresses;
  for (int index = 0; index < kPods; ++index) addresses.push_back(pods.start(index));
  pause(6000);                     // no such name
  pods.publish(0, {"10.78.2.1"});  // nobody's
  pause(6000);
  for (int index = 0; index < kPods; ++index) CHECK_MESSAGE(is_alive(pods.dtrun(index)), said_by_all(pods));
  CHECK(last_step(pods.output()).step == 0);
  pods.publish(0, {"10.78.2.1", addresses[0]});
  for (int index = 1; index < kPods; ++index) pods.publish(index, {addresses[index]});
  ends_with_the_bytes_of_one_worker(pods, kSteps);
  CHECK(last_step(pods.output()).generation == 1);
}

TEST_CASE("a pod that is deleted is one pod: the others' workers go on, and the new one takes its seat") {
  if (const std::string why = why_no_pods(); !why.empty()) return skip(why);
  const int steps = 200 + 700 * rounds();  // they go on meanwhile
  Pods pods(job(steps));
  std::vector<std::string> addresses;
  for (int index = 0; index < kPods; ++index) {
    addresses.push_back(pods.start(index));
    pods.publish(index, {addresses.back()});
  }
  std::mt19937 random(16);
  for (int round = 0; round < rounds(); ++round) {
    const Mark before = last_step(pods.output());
    REQUIRE_MESSAGE(eventually([&] { return last_step(pods.output()).step >= before.step + 20; }),
                    said_by_all(pods));
    const int index = round == 0 ? 0 : static_cast<int>(random() % kPods);
    const bool power = random() % 4 == 0;
    CAPTURE(round);
    CAPTURE(index);
    CAPTURE(power);
    std::vector<std::vector<pid_t>> others;
    for (int other = 0; other < kPods; ++other)
      if (other != index) others.push_back({pods.dtrun(other), pods.workers(other).at(0)});
    const Mark deleted = last_step(pods.output());
    power ? pods.lose(index) : pods.remove(index);
    const std::string old = addresses[index];
    addresses[index] = pods.start(index);
    pause(static_cast<int>(random() % 3000));  // stale
    pods.publish(index, {old, addresses[index]});
    pause(static_cast<int>(random() % 3000));
    pods.publish(index, {addresses[index]});
    REQUIRE_MESSAGE(eventually([&] {
                      const Mark now = last_step(pods.output());
                      return now.generation > deleted.generation && now.world_size == kPods;
                    }),
                    said_by_all(pods));
    for (const std::vector<pid_t>& pids : others)
      for (const pid_t pid : pids) CHECK_MESSAGE(is_alive(pid), said_by_all(pods));
  }
  ends_with_the_bytes_of_one_worker(pods, steps);
}
