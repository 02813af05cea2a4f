// The pod with the only coordinator is told to stop, as a drain, an eviction and `kubectl delete pod` do, and
// another one comes in its place: no other pod ends, and the model has the bytes of a run on one worker.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/e2e/pods/pod_training.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"

namespace dtrun::stopped_test {

using namespace dtrun::test;

namespace {

// A job whose pods have started, the last one first.
class Job {
 public:
  Job(const std::string& nodes, int pods, int steps) : pods_(training_words(nodes, steps)), steps_(steps) {
    for (int index = pods - 1; index >= 0; --index) start(index);
  }

  void start(int index) { pods_.publish(index, {pods_.start(index)}); }

  void is_at(int step, int world_size) {
    const auto is_there = [&] {
      const Mark now = last_step(pods_.output());
      return now.step >= step && now.world_size == world_size;
    };
    REQUIRE_MESSAGE(eventually(is_there, std::chrono::minutes(3)), pods_.said());
  }

  // Pods but the first, each with its worker.
  std::vector<std::pair<pid_t, pid_t>> others() const {
    std::vector<std::pair<pid_t, pid_t>> pids;
    for (const int index : pods_.indices())
      if (index > 0) pids.emplace_back(pods_.dtrun(index), pods_.workers(index).at(0));
    return pids;
  }

  // Pod 0 ends, and nothing of the others does, until the next one is at work.
  void replace_first(int world_size) {
    const auto before = others();
    const int step = last_step(pods_.output()).step;
    CHECK(pods_.stop(0) == 143);
    std::this_thread::sleep_for(std::chrono::seconds(3));  // Kubernetes takes 10 s
    start(0);
    is_at(step + 5, world_size);
    CHECK_MESSAGE(others() == before, pods_.said());
  }

  void ends() { ends_with_the_bytes_of_one_worker(pods_, steps_); }

  Pods& pods() { return pods_; }

 private:
  Pods pods_;
  int steps_;
};

}  // namespace

TEST_CASE("two pods of two: the other one waits for the next coordinator") {
  if (const std::string why = why_no_pods(); !why.empty()) return skip(why);
  Job job("2", 2, 400);
  job.is_at(20, 2);
  job.replace_first(2);
  job.ends();
}

TEST_CASE("the first pod, which `kubectl logs job/NAME` shows, shows the progress, whoever joined first") {
  if (const std::string why = why_no_pods(); !why.empty()) return skip(why);
  Job job("3", 3, 200);
  job.is_at(200, 3);
  job.ends();
  const auto shows = [&](int index) {
    return contains(job.pods().container(index).err(), "done: 200 steps");
  };
  CHECK_MESSAGE(shows(0), job.pods().said());
  CHECK(contains(job.pods().said(), "watch: kubectl port-forward fashion-mnist-convnet-"));
  CHECK_FALSE(shows(1));
  CHECK_FALSE(shows(2));
}

TEST_SUITE_BEGIN("long");

TEST_CASE("three pods of a range: the others wait for the next coordinator, twice") {
  if (const std::string why = why_no_pods(); !why.empty()) return skip(why);
  Job job("2:4", 3, 400);
  job.is_at(20, 3);
  job.replace_first(3);
  job.replace_first(3);
  job.ends();
}

TEST_SUITE_END();

}  // namespace dtrun::stopped_test
