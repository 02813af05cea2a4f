#include "worker/trainer/agent_protocol/control_client.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "proto/base/framed_channel.h"
#include "proto/core/contract.h"
#include "tests/support/clock.h"
#include "worker/base/error.h"
#include "worker/base/pulse.h"

namespace dtrun::worker::control_client_test {
namespace {

using std::chrono::milliseconds;

std::atomic<int> ended_with{-1};
void remember_end(int exit_code) {
  int none = -1;
  ended_with.compare_exchange_strong(none, exit_code);
  ended_with.notify_all();
}

// The agent's end of the socket, driven by the test.
class FakeAgent {
 public:
  FakeAgent() {
    ended_with = -1;
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    fd_ = ends[0];
    const timeval patience{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    client = std::make_unique<ControlClient>(ends[1], remember_end);
  }
  ~FakeAgent() {
    hang_up();
    client.reset();
  }
  void hang_up() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void send(const control::FromAgent& message) { send_raw(message.SerializeAsString()); }
  void send_raw(const std::string& payload) {
    std::string frame;
    append_frame(payload, &frame);
    REQUIRE(write(fd_, frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
  }
  // The next message; fails the test after 10 s without one.
  control::FromWorker next() {
    for (;;) {
      auto message = reader_.next();
      REQUIRE(message.ok());
      if (message.value()) return *std::move(message).value();
      REQUIRE(reader_.read_from(fd_) == Portion::kBytes);
    }
  }
  void stop(control::Stop::Kind kind) {
    control::FromAgent message;
    message.mutable_stop()->set_kind(kind);
    send(message);
  }
  // The exit code that the process would have ended with.
  int end() {
    ended_with.wait(-1);
    return ended_with;
  }

  std::unique_ptr<ControlClient> client;

 private:
  int fd_ = -1;
  MessageReader<control::FromWorker> reader_;
};

TEST_CASE("the worker says hello with its protocol and takes the job from the answer") {
  FakeAgent agent;
  std::thread answering([&] {
    CHECK(agent.next().hello().protocol() == kControlProtocol);
    control::FromAgent message;
    message.mutable_job()->set_config_json("{}");
    message.mutable_job()->set_lanes(3);
    agent.send(message);
  });
  const control::Job job = agent.client->hello();
  answering.join();
  CHECK(job.config_json() == "{}");
  CHECK(job.lanes() == 3);
}

TEST_CASE("store requests are answered by id, in any order") {
  FakeAgent agent;
  std::thread answering([&] {
    const control::FromWorker first = agent.next(), second = agent.next();
    for (const control::FromWorker* request : {&second, &first}) {
      control::FromAgent message;
      message.mutable_kv()->set_id(request->kv().id());
      message.mutable_kv()->set_ok(true);
      message.mutable_kv()->set_value("value of " + request->kv().key());
      agent.send(message);
    }
  });
  std::string a, b;
  std::thread other([&] { b = agent.client->get("b", milliseconds(60000), {}); });
  a = agent.client->get("a", milliseconds(60000), {});
  other.join();
  answering.join();
  CHECK(a == "value of a");
  CHECK(b == "value of b");
}

TEST_CASE("a store that refuses becomes an error with its reason") {
  FakeAgent agent;
  std::thread answering([&] {
    control::FromAgent message;
    message.mutable_kv()->set_id(agent.next().kv().id());
    message.mutable_kv()->set_error("nobody set it within 1 s");
    agent.send(message);
  });
  CHECK_THROWS_WITH_AS(agent.client->get("gloo/1", milliseconds(60000), {}),
                       "the store on 'gloo/1': nobody set it within 1 s", WorkerError);
  answering.join();
}

// The exit code of the error that `wait` ends with, within a second, when stop is requested once it has asked
// the store.
int end_on_stop(FakeAgent& agent, const std::function<void(std::stop_token)>& wait) {
  std::stop_source stop;
  int exit_code = 0;
  bool for_no_other_reason = false;
  std::thread waiting([&] {
    try {
      wait(stop.get_token());
    } catch (const WorkerError& error) {
      exit_code = error.exit_code();
    }
    for_no_other_reason = stop.stop_requested();
  });
  CHECK(agent.next().has_kv());
  const test::Stopwatch since;
  stop.request_stop();
  waiting.join();
  CHECK(since.fair() < milliseconds(1000));
  CHECK(for_no_other_reason);
  return exit_code;
}

TEST_CASE("whoever waits for a store that never answers is set free by a stop") {
  FakeAgent agent;
  ControlClient& client = *agent.client;
  const ProcessGroupOptions options{.rank = 0, .size = 2, .address = "127.0.0.1"};
  const std::function<void(std::stop_token)> waits[] = {
      [&](std::stop_token stop) { client.get("a", milliseconds(60000), stop); },
      [&](std::stop_token stop) { client.set("a", "b", stop); },
      [&](std::stop_token stop) {
        ProcessGroupOptions told = options;
        told.stop = stop;
        make_gloo_process_group(told, client);
      },
  };
  for (const auto& wait : waits) CHECK(end_on_stop(agent, wait) == kExitWorkerPeerLost);
}

TEST_CASE("an abort ends the process at once") {
  FakeAgent agent;
  agent.client->enter_training();
  agent.stop(control::Stop::ABORT);
  CHECK(agent.end() == kExitWorkerStopped);
}

TEST_CASE("the agent's death ends the process at once") {
  FakeAgent agent;
  agent.client->enter_training();
  agent.hang_up();
  CHECK(agent.end() == kExitWorkerStopped);
}

TEST_CASE("a frame that is no message ends the process") {
  FakeAgent agent;
  agent.send_raw(std::string(8, '\xff'));
  CHECK(agent.end() == kExitSoftware);
}

TEST_CASE("while training a stop only sets the flag, however often the signal comes and from whom") {
  FakeAgent agent;
  agent.client->enter_training();
  for (const bool of_agent : {false, true, true}) agent.client->signal_received(of_agent);
  CHECK(agent.client->stop_requested());
  CHECK(ended_with == -1);
}

TEST_CASE("where only the agent stops workers, a scheduler's signal to all processes is not for them") {
  FakeAgent agent;
  std::thread answering([&] {
    agent.next();
    control::FromAgent message;
    message.mutable_job()->set_only_agent_stops(true);
    agent.send(message);
  });
  agent.client->hello();
  answering.join();
  agent.client->enter_training();
  for (int twice = 0; twice < 2; ++twice) agent.client->signal_received(false);
  CHECK_FALSE(agent.client->stop_requested());
  agent.client->signal_received(true);
  CHECK(agent.client->stop_requested());
  agent.client->signal_received(false);
  CHECK(ended_with == -1);
}

TEST_CASE("before training begins a stop ends the process, since nothing is there to be saved") {
  FakeAgent agent;
  agent.client->signal_received();
  CHECK(ended_with == kExitWorkerStopped);
}

TEST_CASE("progress is repeated as a heartbeat") {
  FakeAgent agent;
  Progress progress;
  progress.phase = Progress::Phase::kTraining;
  progress.step = 7;
  agent.client->report(progress);
  for (int twice = 0; twice < 2; ++twice) {
    const control::FromWorker message = agent.next();
    CHECK(message.progress().step() == 7);
    CHECK(message.progress().phase() == training::Progress::TRAINING);
    CHECK(message.pulse() == Pulse::read());
  }
}

TEST_CASE("the device's memory is told where it has its own") {
  FakeAgent agent;
  Progress progress;
  agent.client->report(progress);
  CHECK_FALSE(agent.next().progress().has_memory());
  progress.memory = DeviceMemory{.used = 5, .peak = 6, .total = 7};
  progress.phase = Progress::Phase::kTraining;
  agent.client->report(progress);
  const training::DeviceMemory told = agent.next().progress().memory();
  CHECK(told.used() == 5);
  CHECK(told.peak() == 6);
  CHECK(told.total() == 7);
  Completion completion;
  completion.memory = progress.memory;
  agent.client->completed(completion);
  CHECK(agent.next().completion().memory().peak() == 6);
}

TEST_CASE("where a generation began is told once it is known, with the progress") {
  FakeAgent agent;
  Progress progress;
  agent.client->report(progress);
  CHECK_FALSE(agent.next().progress().has_first_step());
  progress.phase = Progress::Phase::kTraining;
  progress.first_step = 0;
  agent.client->report(progress);
  const control::FromWorker message = agent.next();
  CHECK(message.progress().has_first_step());
  CHECK(message.progress().first_step() == 0);
  CHECK_FALSE(message.progress().from_in_memory_checkpoint());
  progress.from_in_memory_checkpoint = true;
  progress.first_step = 9;
  agent.client->report(progress);
  CHECK(agent.next().progress().from_in_memory_checkpoint());
}

TEST_CASE("a worker that waits for a place no longer says where its last generation began") {
  FakeAgent agent;
  Progress progress;
  progress.step = 13;
  progress.first_step = 8;
  agent.client->report(progress);
  CHECK(agent.next().progress().first_step() == 8);
  control::FromAgent start;
  start.mutable_start();
  agent.send(start);
  agent.client->ready({});
  while (!agent.next().has_ready()) {
  }
  const training::Progress repeated = agent.next().progress();
  CHECK(repeated.step() == 13);
  CHECK_FALSE(repeated.has_first_step());
}

TEST_CASE("every fact of a training that is complete reaches the agent") {
  FakeAgent agent;
  agent.client->completed({9, 0.5, 0.75, "model", "sha", 10, 3, 8, 100, 0.4, 0.3, 0.2, 0.1});
  const training::Completion done = agent.next().completion();
  CHECK(done.step() == 9);
  CHECK(done.loss() == 0.5);
  CHECK(done.accuracy() == 0.75);
  CHECK(done.model_path() == "model");
  CHECK(done.params_sha256() == "sha");
  CHECK(done.seconds() == 10);
  CHECK(done.first_step() == 3);
  CHECK(done.training_seconds() == 8);
  CHECK(done.samples_per_second() == 100);
  CHECK(done.math() == 0.4);
  CHECK(done.wait_gradients() == 0.3);
  CHECK(done.wait_data() == 0.2);
  CHECK(done.other() == 0.1);
}

control::FromAgent start_of(std::int64_t generation) {
  control::FromAgent message;
  message.mutable_start()->set_generation(generation);
  message.mutable_start()->set_rank(1);
  return message;
}

TEST_CASE("a worker that waits says so, and gets a place that an order to pause ends") {
  FakeAgent agent;
  control::Ready ready;
  ready.set_step(41);
  ready.set_error("lost rank 1");
  std::thread answering([&] {
    const control::FromWorker said = agent.next();
    CHECK(said.ready().step() == 41);
    CHECK(said.ready().error() == "lost rank 1");
    agent.send(start_of(7));
  });
  const auto first = agent.client->ready(ready);
  answering.join();
  REQUIRE(first);
  CHECK(first->place.generation() == 7);
  CHECK_FALSE(first->paused.stop_requested());
  agent.stop(control::Stop::PAUSE);
  agent.send(start_of(8));  // the order concerns the place before it
  const auto second = agent.client->ready(ready);
  REQUIRE(second);
  CHECK(first->paused.stop_requested());
  CHECK(second->place.generation() == 8);
  CHECK_FALSE(second->paused.stop_requested());
}

TEST_CASE("an order to pause that overtakes the work it ends is not forgotten") {
  FakeAgent agent;
  agent.send(start_of(3));
  agent.stop(control::Stop::PAUSE);
  const auto start = agent.client->ready({});
  REQUIRE(start);
  while (!start->paused.stop_requested()) std::this_thread::yield();
}

TEST_CASE("a pause after the step in hand is a wish that a new place ends") {
  FakeAgent agent;
  agent.send(start_of(3));
  REQUIRE(agent.client->ready({}));
  agent.stop(control::Stop::PAUSE_AFTER_STEP);
  while (!agent.client->pause_requested()) std::this_thread::yield();
  CHECK_FALSE(agent.client->stop_requested());
  agent.send(start_of(4));
  REQUIRE(agent.client->ready({}));
  CHECK_FALSE(agent.client->pause_requested());
}

TEST_CASE("a worker that has trained and waits is not ended by a stop: it may have something to save") {
  FakeAgent agent;
  agent.client->enter_training();
  std::thread stopping([&] {
    CHECK(agent.next().has_ready());
    agent.client->signal_received();
  });
  CHECK_FALSE(agent.client->ready({}));
  stopping.join();
  CHECK(ended_with == -1);
}

}  // namespace
}  // namespace dtrun::worker::control_client_test
