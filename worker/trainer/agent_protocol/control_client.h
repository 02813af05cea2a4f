// The worker's end of the control socket (proto/control.proto): sends Hello, receives the job and a place in
// each generation, queries the agent's key-value store, and reports progress at least once a second. An order
// to pause ends the current generation. SIGTERM sets the stop flag; before training it ends the process, as
// an order to abort does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "proto/control.pb.h"
#include "worker/collective/process_group.h"
#include "worker/trainer/agent_protocol/agent_link.h"

namespace dtrun::worker {

class ControlClient final : public AgentLink, public KeyValueStore {
 public:
  // Ends the process at once with this exit code, and does not return (in tests it may).
  using EndProcess = void (*)(int exit_code);

  // Takes ownership of the connected stream socket. Starts the reader and the reporter thread, which live as
  // long as this.
  ControlClient(int fd, EndProcess end_process);
  ~ControlClient() override;
  ControlClient(const ControlClient&) = delete;

  // Sends Hello and waits for the agent's answer. Throws WorkerError if none comes.
  control::Job hello();

  // A place in a generation; `paused` is requested at the order to pause.
  struct Start {
    control::Start place;
    std::stop_token paused;
  };
  // Reports that this worker waits for a place, and waits for it. Nothing if the worker is told to stop
  // instead.
  std::optional<Start> ready(const control::Ready& ready);

  // A stop by signal. Repeated it means no hurry: systemd and others send it to agent and workers at once, so
  // that a worker gets the agent's, too. Only the agent hurries a worker, by SIGKILL. Some jobs accept only
  // the agent's signals. Any thread.
  void signal_received(bool of_agent = true);

  // While this worker has nothing to save, a stop ends the process at once; after this call a stop sets the
  // flag.
  void enter_training() {
    in_training_ = true;
    if_stopped_before_training();
  }

  bool stop_requested() const override { return stop_requested_; }
  bool pause_requested() const override { return pause_requested_; }
  void report(const Progress& progress) override;
  void completed(const Completion& completion) override;

  void set(const std::string& key, const std::string& value, std::stop_token stop) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout, std::stop_token stop) override;

  void send_fault(int exit_code, const std::string& message);

 private:
  void send(const control::FromWorker& message);
  void write(const control::FromWorker& message);
  void send_progress();
  control::KvReply request(control::KvRequest request, std::chrono::milliseconds timeout,
                           const std::stop_token& stop);
  void read_loop();
  void take(const control::FromAgent& message);
  void report_loop();
  void request_stop();
  void take_start(const control::Start& start);
  void take_stop(const control::Stop& stop);
  void if_stopped_before_training();

  const int fd_;
  const EndProcess end_process_;
  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> pause_requested_{false};  // after a step
  std::atomic<bool> in_training_{false};
  std::atomic<bool> only_agent_stops_{false};

  std::mutex send_mutex_;  // one frame at a time on the socket; taken before mutex_

  std::mutex mutex_;  // guards the members below
  std::condition_variable_any changed_;
  bool closing_ = false;
  std::optional<control::Job> job_;
  std::optional<control::Start> start_;  // not taken yet
  std::stop_source pause_;               // belongs to the newest start
  std::uint64_t next_request_ = 1;
  std::map<std::uint64_t, std::optional<control::KvReply>> requests_;
  std::optional<Progress> progress_;
  bool report_now_ = false;

  std::thread reader_, reporter_;
};

}  // namespace dtrun::worker
