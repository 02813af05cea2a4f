#include "worker/trainer/agent_protocol/control_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/base/framed_channel.h"
#include "proto/core/contract.h"
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

void set_memory(const DeviceMemory& memory, control::GpuMemory* message) {
  message->set_used(memory.used);
  message->set_peak(memory.peak);
  message->set_total(memory.total);
}

control::Progress to_message(const TrainingProgress& progress) {
  control::Progress message;
  message.set_phase(static_cast<control::Progress::Phase>(progress.phase));
  message.set_step(progress.step);
  message.set_total_steps(progress.total_steps);
  message.set_epoch(progress.epoch);
  if (progress.loss) message.set_loss(*progress.loss);
  message.set_learning_rate(progress.learning_rate);
  message.set_samples_per_second(progress.samples_per_second);
  message.set_accuracy(progress.accuracy);
  message.set_note(progress.note);
  if (progress.first_step) message.set_first_step(*progress.first_step);
  if (progress.memory) set_memory(*progress.memory, message.mutable_gpu_memory());
  message.set_from_in_memory_checkpoint(progress.from_in_memory_checkpoint);
  return message;
}
static_assert(static_cast<int>(Phase::kLoading) == control::Progress::LOADING);
static_assert(static_cast<int>(Phase::kTraining) == control::Progress::TRAINING);
static_assert(static_cast<int>(Phase::kEvaluating) == control::Progress::EVALUATING);
static_assert(static_cast<int>(Phase::kSaving) == control::Progress::SAVING);

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
    if (progress_) progress_->first_step.reset();  // the next generation has another first step
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
  if (signals_.fetch_add(1) > 0) end_process_(kExitWorkerStopped);
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

void ControlClient::report(const TrainingProgress& progress) {
  std::lock_guard lock(mutex_);
  // A note or a new phase is sent at once; of other reports the reporter sends the newest at the next
  // interval.
  const bool urgent = !progress_ || progress.phase != progress_->phase || !progress.note.empty() ||
                      progress.accuracy != progress_->accuracy;
  std::string unsent_note = progress_ && report_now_ ? progress_->note : std::string();
  progress_ = progress;
  if (progress_->note.empty()) progress_->note = std::move(unsent_note);
  if (urgent) {
    report_now_ = true;
    changed_.notify_all();
  }
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
    *message.mutable_progress() = to_message(*progress_);
    progress_->note.clear();
  }
  message.mutable_progress()->set_pulse(Pulse::read());
  write(message);
}

void ControlClient::completed(const Completion& completion) {
  control::FromWorker message;
  control::Completed& body = *message.mutable_completed();
  body.set_step(completion.step);
  body.set_loss(completion.loss);
  body.set_accuracy(completion.accuracy);
  body.set_model_path(completion.model_path);
  body.set_params_sha256(completion.params_sha256);
  body.set_seconds(completion.seconds);
  body.set_first_step(completion.first_step);
  body.set_training_seconds(completion.training_seconds);
  body.set_samples_per_second(completion.samples_per_second);
  body.set_math(completion.math);
  body.set_wait_gradients(completion.wait_gradients);
  body.set_wait_data(completion.wait_data);
  body.set_other(completion.other);
  if (completion.memory) set_memory(*completion.memory, body.mutable_gpu_memory());
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
