#include "worker/trainer/agent_protocol/control_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/base/framed_channel.h"
#include "proto/core/contract.h"
#include "proto/wire/training.h"
#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/base/stop_point.h"

namespace dtrun::worker {

namespace {

using std::chrono::milliseconds;

// The interval of the reporter; the agent expects a report at least once a second.
constexpr milliseconds kReportInterval{400};
constexpr milliseconds kHelloTimeout{60000};
// Added to the time that the store itself may take, for the round trip.
constexpr milliseconds kRequestSlack{10000};

}  // namespace

ControlClient::ControlClient(int fd, EndProcess end_process) : fd_(fd), end_process_(end_process) {
  reader_ = std::thread([this] { read_loop(); });
  reporter_ = std::thread([this] { report_loop(); });
}

ControlClient::~ControlClient() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  shutdown(fd_, SHUT_RDWR);  // wakes the reader
  reader_.join();
  reporter_.join();
  close(fd_);
}

control::Job ControlClient::hello() {
  control::FromWorker message;
  message.mutable_hello()->set_protocol(kControlProtocol);
  message.mutable_hello()->set_pid(getpid());
  send(message);
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kHelloTimeout, [&] { return job_.has_value(); })) {
    throw WorkerError(kExitSoftware, "the agent did not say what to train within 60 s");
  }
  return *job_;
}

std::optional<ControlClient::Start> ControlClient::ready(const control::Ready& ready) {
  {
    std::lock_guard lock(mutex_);
    if (progress_) {  // the next generation has others
      progress_->first_step.reset();
      progress_->step_times.reset();
    }
  }
  control::FromWorker message;
  *message.mutable_ready() = ready;
  send(message);
  const Pulse::WaitsForPeers alive;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closing_ || stop_requested_ || start_; });
  if (!start_ || stop_requested_) return std::nullopt;
  return Start{.place = *std::exchange(start_, std::nullopt), .paused = pause_.get_token()};
}

void ControlClient::signal_received(bool of_agent) {
  if (only_agent_stops_ && !of_agent) return;
  request_stop();
}

void ControlClient::request_stop() {
  stop_requested_ = true;
  if_stopped_before_training();
  changed_.notify_all();
}

void ControlClient::if_stopped_before_training() {
  if (stop_requested_ && !in_training_) end_process_(kExitWorkerStopped);
}

// The begin of a generation, a new phase and an evaluation are sent at once; of other reports the reporter
// sends the newest at the next interval.
void ControlClient::report(const Progress& progress) {
  std::lock_guard lock(mutex_);
  const bool urgent = !progress_ || progress.phase != progress_->phase ||
                      progress.accuracy != progress_->accuracy ||
                      progress.first_step != progress_->first_step;
  progress_ = progress;
  if (!urgent) return;
  report_now_ = true;
  changed_.notify_all();
}

void ControlClient::report_loop() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait_for(lock, kReportInterval, [&] { return closing_ || report_now_; });
    if (closing_ || !progress_) continue;
    report_now_ = false;
    lock.unlock();
    send_progress();
    lock.lock();
  }
}

// Holds the lock from taking the report to sending it, so that later messages of other threads come behind:
// no report of an earlier generation follows a Ready.
void ControlClient::send_progress() {
  std::lock_guard order(send_mutex_);
  control::FromWorker message;
  {
    std::lock_guard lock(mutex_);
    to_wire(*progress_, message.mutable_progress());
  }
  message.set_pulse(Pulse::read());
  write(message);
}

void ControlClient::completed(const Completion& completion) {
  control::FromWorker message;
  to_wire(completion, message.mutable_completion());
  send(message);
}

void ControlClient::send_fault(int exit_code, const std::string& message_text) {
  control::FromWorker message;
  message.mutable_fault()->set_exit_code(exit_code);
  message.mutable_fault()->set_message(message_text);
  send(message);
}

// Blocks while the agent does not read; the reader thread notices a dead agent.
void ControlClient::send(const control::FromWorker& message) {
  std::lock_guard lock(send_mutex_);
  write(message);
}

// REQUIRES: send_mutex_ held.
void ControlClient::write(const control::FromWorker& message) { write_all(fd_, frame_of(message)); }

void ControlClient::set(const std::string& key, const std::string& value, std::stop_token stop) {
  control::KvRequest message;
  message.set_op(control::KvRequest::SET);
  message.set_key(key);
  message.set_value(value);
  request(std::move(message), milliseconds(0), stop);
}

std::string ControlClient::get(const std::string& key, milliseconds timeout, std::stop_token stop) {
  control::KvRequest message;
  message.set_op(control::KvRequest::GET);
  message.set_key(key);
  message.set_timeout_ms(timeout.count());
  return request(std::move(message), timeout, stop).value();
}

control::KvReply ControlClient::request(control::KvRequest kv, milliseconds timeout,
                                        const std::stop_token& stop) {
  const std::string key = kv.key();
  std::uint64_t id;
  {
    std::lock_guard lock(mutex_);
    id = next_request_++;
    requests_[id];
  }
  kv.set_id(id);
  control::FromWorker message;
  *message.mutable_kv() = std::move(kv);
  send(message);

  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, stop, timeout + kRequestSlack,
                    [&] { return closing_ || requests_[id].has_value(); });
  const std::optional<control::KvReply> reply = std::move(requests_[id]);
  requests_.erase(id);
  if (!reply && stop.stop_requested()) {
    throw WorkerError(kExitWorkerPeerLost, "no longer waits for the store's '" + key + "'");
  }
  if (!reply) throw WorkerError(kExitWorkerPeerLost, "the store did not answer about '" + key + "'");
  if (!reply->ok()) throw WorkerError(kExitWorkerPeerLost, "the store on '" + key + "': " + reply->error());
  return *reply;
}

void ControlClient::read_loop() {
  MessageReader<control::FromAgent> messages;
  while (messages.read_from(fd_) != Portion::kEnd) {
    for (;;) {
      const auto message = messages.next();
      if (!message.ok()) return end_process_(kExitSoftware);
      if (!message.value()) break;
      take(*message.value());
    }
  }
  std::unique_lock lock(mutex_);
  if (closing_) return;
  lock.unlock();
  // Without its agent this worker is unsupervised, and its peers are being stopped too.
  end_process_(kExitWorkerStopped);
}

void ControlClient::take(const control::FromAgent& message) {
  switch (message.body_case()) {
    case control::FromAgent::kJob: {
      std::lock_guard lock(mutex_);
      job_ = message.job();
      only_agent_stops_ = job_->only_agent_stops();
      break;
    }
    case control::FromAgent::kStart:
      take_start(message.start());
      break;
    case control::FromAgent::kKv: {
      std::lock_guard lock(mutex_);
      // An answer whose request has timed out is dropped.
      if (auto waiting = requests_.find(message.kv().id()); waiting != requests_.end())
        waiting->second = message.kv();
      break;
    }
    case control::FromAgent::kStop:
      take_stop(message.stop());
      break;
    case control::FromAgent::kHelloAck:  // these two are for other programs: this one is answered with its
                                         // Job
    case control::FromAgent::kEnd:
    case control::FromAgent::BODY_NOT_SET:
      break;
  }
  changed_.notify_all();
}

void ControlClient::take_start(const control::Start& start) {
  std::lock_guard lock(mutex_);
  start_ = start;
  pause_ = std::stop_source();
  pause_requested_ = false;
}

void ControlClient::take_stop(const control::Stop& stop) {
  switch (stop.kind()) {
    case control::Stop::ABORT:
      return end_process_(kExitWorkerStopped);
    case control::Stop::PAUSE_AFTER_STEP:
      pause_requested_ = true;
      stop_point(StopPoint::kPauseOrdered);
      return;
    case control::Stop::PAUSE: {
      std::unique_lock lock(mutex_);
      std::stop_source pause = pause_;
      lock.unlock();
      pause.request_stop();  // aborts the process group on this thread
      return;
    }
    default:  // a message of a newer agent, which would not have sent Job
      return;
  }
}

}  // namespace dtrun::worker
