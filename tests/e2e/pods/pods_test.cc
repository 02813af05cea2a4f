// Pods of the manifest that `dtrun kubernetes` writes, whose names DNS gives late, stale and twice, and which
// are deleted and come again with another address: the others never restart, and the model has the bytes of a
// run on one worker. DTRUN_ROUNDS is how many are deleted (4).
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/e2e/pods/pod_training.h"
#include "tests/support/skip.h"

namespace dtrun::pods_test {

using namespace dtrun::test;

namespace {

constexpr int kPods = 3;

int rounds() {
  const char* const number = std::getenv("DTRUN_ROUNDS");
  return number != nullptr ? std::atoi(number) : 4;
}

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

}  // namespace

TEST_CASE("names that come late, stale and twice are waited for") {
  if (const std::string why = why_no_pods(); !why.empty()) return skip(why);
  constexpr int kSteps = 60;
  Pods pods(training_words(std::to_string(kPods), kSteps));
  std::vector<std::string> addresses;
  for (int index = 0; index < kPods; ++index) addresses.push_back(pods.start(index));
  // No such name, for longer than elsewhere (Times::unknown_name): a pod that is not placed has none.
  pause(17000);
  pods.publish(0, {"10.78.2.1"});  // nobody's
  pause(6000);
  for (int index = 0; index < kPods; ++index) CHECK_MESSAGE(is_alive(pods.dtrun(index)), pods.said());
  CHECK(last_step(pods.output()).step == 0);
  pods.publish(0, {"10.78.2.1", addresses[0]});
  for (int index = 1; index < kPods; ++index) pods.publish(index, {addresses[index]});
  ends_with_the_bytes_of_one_worker(pods, kSteps);
  CHECK(last_step(pods.output()).generation == 1);
}

TEST_SUITE_BEGIN("long");

TEST_CASE("a pod that is deleted is one pod: the others' workers go on, and the new one takes its seat") {
  if (const std::string why = why_no_pods(); !why.empty()) return skip(why);
  const int steps = 200 + 700 * rounds();  // they go on meanwhile
  Pods pods(training_words(std::to_string(kPods), steps));
  std::vector<std::string> addresses;
  for (int index = 0; index < kPods; ++index) {
    addresses.push_back(pods.start(index));
    pods.publish(index, {addresses.back()});
  }
  std::mt19937 random(16);
  for (int round = 0; round < rounds(); ++round) {
    const Mark before = last_step(pods.output());
    REQUIRE_MESSAGE(eventually([&] { return last_step(pods.output()).step >= before.step + 20; }),
                    pods.said());
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
                    pods.said());
    for (const std::vector<pid_t>& pids : others)
      for (const pid_t pid : pids) CHECK_MESSAGE(is_alive(pid), pods.said());
  }
  ends_with_the_bytes_of_one_worker(pods, steps);
}

TEST_SUITE_END();

}  // namespace dtrun::pods_test
