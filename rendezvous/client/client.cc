// The order of events, on the client's own thread, until it is closed:
//
//   find        of several hosts: which of them is the coordinator?
//   dial        resolve the host's name, connect a socket
//   Opened      the connection stands: the agent sends its Join
//   Connected   a coordinator answered: store operations that waited are sent now; then Received …
//   wait        until the stream ends; the store's operations under way wait for the next connection
//   diagnose    no answer: is it something else that listens there?
//   Disconnected, and dial again: at once if the connection had stood, else after a back-off
//
// If one host has several ports, all are dialled before Disconnected; an answer for another run is ignored.
// If there are several hosts, the leader says where it listens.
//
// send() and kv() come from the agent's thread, Connected and Received from gRPC's.
#include "rendezvous/client/client.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "proto/core/text.h"
#include "rendezvous/client/back_off.h"
#include "rendezvous/client/client_stream.h"
#include "rendezvous/client/connector.h"
#include "rendezvous/client/kv_calls.h"
#include "rendezvous/client/leader_watch.h"
#include "rendezvous/wire/grpc_setup.h"
#include "rendezvous/wire/intake.h"

namespace dtrun::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kProbeTimeout{1000};
constexpr milliseconds kOnlyOthersIsPermanent{15000};  // a coordinator of a row of ports starts with its step

// Attempts, each of Times::answer: a coordinator may be stopped, or starved, for a while.
constexpr int kSilentIsPermanent = 2;
// Hosts that have just started agree within this time on one that leads.
constexpr milliseconds kWithoutLeader{2000};
// The host that was the leader may be gone, and another one lead by then.
constexpr milliseconds kToLeader{1000};

// A ping follows a third of `silence` after the last sign of life, and has the rest of it to be answered.
grpc::ChannelArguments arguments_for(milliseconds silence) {
  const int total = static_cast<int>(std::clamp<std::int64_t>(silence.count(), 3, 1'000'000'000));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, total / 3);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, total - total / 3);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

// By gRPC's reason for a stream's end: its pings, or TCP, were not answered.
bool is_silence(const std::string& message) {
  return message.find("keepalive") != std::string::npos || message.find("timed out") != std::string::npos;
}

// That reason, for people.
std::string in_brackets(const std::string& message, milliseconds silence) {
  if (message.empty() || message == "CANCELLED") return "";
  if (is_silence(message)) return " (silent for " + std::to_string((silence.count() + 999) / 1000) + " s)";
  return " (" + message + ")";
}

Status unavailable(const std::string& message) { return Status(kExitUnavailable, message); }

// Shared by the client, its thread and the calls under way, each of which may outlive the others.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(const ClientOptions& options, Client::Sink sink)
      : options_(options),
        ports_{options.port},
        connector_(options.key),
        host_(options.host),
        sink_(std::move(sink)) {
    ports_.insert(ports_.end(), options.more_ports.begin(), options.more_ports.end());
  }

  // With several hosts; before run() and after it.
  void watch();
  void stop_watching() { watch_.reset(); }

  void run();
  void send(const v1::FromAgent& message);
  void kv(int worker_serial, const std::string& prefix, const control::KvRequest& request);
  void close(milliseconds timeout);
  void silence();  // no call of the sink after it returns
  void quit();
  bool let_go(std::thread& thread) const { return connector_.let_go(thread); }

 private:
  struct Attempt {
    bool connected = false;
    Status why = {};
    bool permanent = false;
    bool same_anywhere = false;            // other ports of the host would be no better
    bool silent = false, refused = false;  // Disconnected's
  };
  Attempt sweep();
  bool lasts(bool only_others);
  Attempt attempt();
  bool find_leader(Attempt* none);
  void leader_changed();
  Dialled dial();
  Attempt join(const Dialled& dialled);
  Attempt diagnose(const grpc::Status& status);
  Attempt unresolved(const std::string& error);
  bool adopt(std::shared_ptr<ClientStream> stream, std::shared_ptr<grpc::Channel> channel);
  struct Answered {
    bool met = false;
    std::string by_other_run;
  };
  Answered drop();
  void meet();
  bool pause(milliseconds time);
  void deliver(ClientEvent event);
  void on_connected();
  void on_received(v1::FromCoordinator message);
  std::shared_ptr<KvCalls> kv_calls();
  Attempt silent();
  Attempt something_else(const std::string& what) const;
  int port() const { return ports_[port_]; }
  std::string endpoint() const { return endpoint_text(host_, port()); }
  std::string counterpart() const { return separate_.load() ? "store" : "coordinator"; }

  const ClientOptions options_;
  std::vector<int> ports_;              // never changed
  std::unique_ptr<LeaderWatch> watch_;  // null: there is one host
  Connector connector_;
  std::atomic<bool> separate_{false};  // the coordinator met last is a `dtrun store`

  std::atomic<election::Term> obeyed_{0};  // the highest of a leader

  // The thread's.
  std::size_t port_ = 0;      // of ports_: the one that is tried, or where the coordinator is
  std::string host_;          // that it dials
  election::Term tried_ = 0;  // of the leader that it dialled last, and found none
  std::optional<Clock::time_point> unknown_since_;
  std::optional<Clock::time_point> only_others_since_;
  int silent_attempts_ = 0;
  bool ever_connected_ = false;

  std::mutex mutex_;             // guards the next eight
  election::Term followed_ = 0;  // of the leader that stream_ goes to
  std::condition_variable closing_changed_;
  bool closing_ = false;
  std::shared_ptr<ClientStream> stream_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<KvCalls> kv_;  // made when it is first needed
  bool met_ = false;             // the run's coordinator, on this connection
  std::string other_run_;        // this connection's coordinator serves another: its words

  std::mutex sink_mutex_;  // one call of the sink at a time; guards the sink
  Client::Sink sink_;
};

void Core::run() {
  std::uint64_t random = reinterpret_cast<std::uintptr_t>(this) ^
                         static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  for (int failures = 1;; ++failures) {
    const Attempt ended = sweep();
    if (ended.connected) failures = 1;
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
    }
    deliver(Disconnected{.why = ended.why,
                         .permanent = ended.permanent,
                         .attempt = failures,
                         .silent = ended.silent,
                         .refused = ended.refused});
    kv_calls()->expire();
    // A coordinator that lives gives the seat away after a moment: the first attempt is at once.
    if (!pause(ended.connected || watch_ ? milliseconds(0) : back_off(failures, &random))) return;
    if (watch_ && !ended.connected) (void)watch_->wait_for(tried_, back_off(failures, &random));
  }
}

// Makes one attempt on each port, from the one where the coordinator was; with several hosts, on the
// leader's. Attempts elsewhere add only a permanent reason to stay out, which matters if the coordinator does
// not come to another port in the meantime.
Core::Attempt Core::sweep() {
  Attempt told;
  bool refused = true;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    Attempt ended = attempt();
    if (ended.connected || ended.same_anywhere || ports_.size() == 1) return ended;
    refused = refused && ended.refused;
    if (i == 0 || (ended.permanent && !told.permanent)) told = std::move(ended);
    if (watch_) break;
    port_ = (port_ + 1) % ports_.size();
    const std::lock_guard lock(mutex_);
    if (closing_) return told;
  }
  told.permanent = lasts(told.permanent);
  told.refused = refused && !watch_;  // a leader that is gone has a successor
  return told;
}

// True if for long other programs or runs have had all of the several ports.
bool Core::lasts(bool only_others) {
  if (!only_others) {
    only_others_since_.reset();
    return false;
  }
  if (!only_others_since_) only_others_since_ = Clock::now();
  return !ever_connected_ && Clock::now() - *only_others_since_ >= kOnlyOthersIsPermanent;
}

void Core::watch() {
  if (options_.hosts.empty()) return;
  auto changed = [weak = weak_from_this()] {
    if (auto core = weak.lock()) core->leader_changed();
  };
  auto watch = LeaderWatch::start(options_.hosts, ports_, options_.key, options_.list, std::move(changed));
  const std::lock_guard lock(mutex_);
  watch_ = std::move(watch);
}

// The connection to a leader that another one has followed is of no use, even if it still stands.
void Core::leader_changed() {
  std::shared_ptr<ClientStream> stream;
  {
    const std::lock_guard lock(mutex_);
    if (!watch_ || watch_->newest().term <= followed_) return;
    connector_.interrupt_dial();
    stream = stream_;
  }
  if (stream) stream->cancel();
}

// The dialling ends early if another host leads meanwhile: a leader that is cut off would not answer.
Dialled Core::dial() {
  if (!watch_) return connector_.dial(host_, port(), options_.connect_timeout);
  return connector_.dial(host_, port(), std::min(kToLeader, options_.connect_timeout), [this] {
    const std::lock_guard lock(mutex_);
    return watch_->newest().term <= followed_;
  });
}

// Makes the leader the host to dial. False if none is known for a while.
bool Core::find_leader(Attempt* none) {
  const LeaderAt leader = watch_->wait_for(0, kWithoutLeader);
  if (leader.term == 0) {
    const Status trouble = watch_->trouble();
    const bool other_key = trouble.exit_code() == kExitNoPermission;
    *none = {.why = other_key ? trouble
                              : unavailable("no host of " + dtrun::join(options_.hosts, ",") +
                                            " is the coordinator (" + trouble.message() + ")"),
             .permanent = ports_.size() > 1 ? lasts(other_key) : other_key && !ever_connected_,
             .same_anywhere = true,
             .refused = watch_->none_can_lead()};
    tried_ = 0;
    return false;
  }
  host_ = options_.hosts[static_cast<std::size_t>(leader.host)];
  tried_ = leader.term;
  port_ = static_cast<std::size_t>(std::ranges::find(ports_, leader.port) - ports_.begin());
  const std::lock_guard lock(mutex_);
  followed_ = leader.term;
  return true;
}

Core::Attempt Core::attempt() {
  if (Attempt none; watch_ && !find_leader(&none)) return none;
  const Dialled dialled = dial();
  if (dialled.unresolved) return unresolved(dialled.error);
  unknown_since_.reset();
  if (dialled.fd >= 0) return join(dialled);
  return {.why = unavailable(
              ever_connected_ ? "cannot reach the " + counterpart() + " at " + endpoint() + " any more (" +
                                    dialled.error + ")"
                              : "no coordinator at " + endpoint() + " (" + dialled.error +
                                    "); is the agent or the `dtrun store` that hosts it running, and is the "
                                    "port open?"),
          .refused = dialled.refused && !watch_};
}

Core::Attempt Core::unresolved(const std::string& error) {
  if (!unknown_since_) unknown_since_ = Clock::now();
  // The name of a container that is started again is unknown until then.
  const auto unknown_for = std::chrono::duration_cast<milliseconds>(Clock::now() - *unknown_since_);
  const bool permanent = !watch_ && !ever_connected_ && unknown_for >= options_.times.unknown_name;
  return {.why = unavailable("the host name \"" + host_ + "\" of the rendezvous endpoint " + endpoint() +
                             " does not resolve (" + error + "); it is from " + options_.endpoint_from),
          .permanent = permanent,
          .same_anywhere = true};
}

Core::Attempt Core::join(const Dialled& dialled) {
  std::shared_ptr<grpc::Channel> channel =
      connector_.open(host_, dialled, port(), arguments_for(options_.keep_alive_timeout));
  std::weak_ptr<Core> weak = weak_from_this();
  auto connected = [weak] {
    if (auto core = weak.lock()) core->on_connected();
  };
  auto received = [weak](v1::FromCoordinator message) {
    if (auto core = weak.lock()) core->on_received(std::move(message));
  };
  const auto stream = std::make_shared<ClientStream>(
      StreamSink{.connected = std::move(connected), .received = std::move(received)});
  // Before the stream starts: the receiver of Opened may send at once.
  if (!adopt(stream, channel)) return {};
  deliver(Opened{dialled.local_address});
  stream->start(channel, stream);
  channel.reset();
  if (watch_) leader_changed();  // there may be another one since it was dialled
  if (!stream->wait_until_answered(Clock::now() + options_.times.answer)) stream->cancel();
  stream->wait_until_done();
  const Answered answered = drop();
  if (!answered.by_other_run.empty()) return {.why = unavailable(answered.by_other_run), .permanent = true};
  if (!answered.met) return diagnose(stream->status());
  ever_connected_ = true;
  const std::string message = stream->status().error_message();
  return {.connected = true,
          .why = unavailable("lost the connection to the " + counterpart() + " at " + endpoint() +
                             in_brackets(message, options_.keep_alive_timeout)),
          .silent = is_silence(message)};
}

// The connection stood, but no coordinator answered.
Core::Attempt Core::diagnose(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION)
    return {.why = unavailable(endpoint() + ": " + status.error_message())};
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return something_else("another gRPC service");
  if (Status refused = connector_.compare_keys(host_, port(), kProbeTimeout); !refused.ok())
    return {.why = refused, .permanent = true};
  switch (connector_.probe(host_, port(), kProbeTimeout)) {
    case ProbeAnswer::kOther:
      return something_else("it does not speak gRPC");
    case ProbeAnswer::kSilent:
      if (!ever_connected_) return silent();
      break;
    case ProbeAnswer::kHttp2:
    case ProbeAnswer::kGone:
      break;
  }
  return {.why = unavailable("the " + counterpart() + " at " + endpoint() + " does not answer" +
                             in_brackets(status.error_message(), options_.keep_alive_timeout))};
}

Core::Attempt Core::silent() {
  if (++silent_attempts_ >= kSilentIsPermanent)
    return something_else("it accepts connections but says nothing");
  return {.why = unavailable("what listens on " + endpoint() +
                             " accepts connections but says nothing: a coordinator that stands still, or "
                             "something else")};
}

Core::Attempt Core::something_else(const std::string& what) const {
  return {.why = unavailable("something else than a dtrun coordinator listens on " + endpoint() + " (" +
                             what + "); choose another port with --rdzv_endpoint"),
          .permanent = true};
}

// Makes the stream the one that send() and close() use; false if the client is closing.
bool Core::adopt(std::shared_ptr<ClientStream> stream, std::shared_ptr<grpc::Channel> channel) {
  const std::lock_guard lock(mutex_);
  if (closing_) return false;
  stream_ = std::move(stream);
  channel_ = std::move(channel);
  met_ = false;
  other_run_.clear();
  return true;
}

// Drops the ended connection; returns how it was answered.
Core::Answered Core::drop() {
  kv_calls()->disconnected();
  const std::lock_guard lock(mutex_);
  stream_.reset();
  channel_.reset();
  return {.met = met_, .by_other_run = other_run_};
}

// False if the client closes meanwhile.
bool Core::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  return !closing_changed_.wait_for(lock, time, [this] { return closing_; });
}

std::shared_ptr<KvCalls> Core::kv_calls() {
  const std::lock_guard lock(mutex_);
  if (!kv_) {
    kv_ = std::make_shared<KvCalls>([weak = weak_from_this()](int worker_serial, control::KvReply reply) {
      if (auto core = weak.lock()) core->deliver(KvDone{worker_serial, std::move(reply)});
    });
  }
  return kv_;
}

// With several ports the coordinator may be another run's: only its first message tells, so meet() waits for
// it.
void Core::on_connected() {
  if (ports_.size() == 1) meet();
}

void Core::meet() {
  std::shared_ptr<grpc::Channel> channel;
  {
    const std::lock_guard lock(mutex_);
    channel = channel_;
    if (std::exchange(met_, true)) return;
  }
  deliver(Connected{port()});
  kv_calls()->connected(channel);
}

// A deposed leader's message may come late: it is dropped once a later leader has been obeyed.
void Core::on_received(v1::FromCoordinator message) {
  if (message.term() < obeyed_.load()) return;
  make_printable(&message);
  obeyed_ = message.term();
  if (ports_.size() > 1) {
    const auto& rejected = message.rejected();
    const bool other = message.has_rejected() && rejected.reason() == v1::Rejected::OTHER_RUN;
    {
      const std::lock_guard lock(mutex_);
      if (!met_ && other) other_run_ = rejected.message();
      if (!other_run_.empty()) return;
    }
    meet();
  }
  if (message.has_join_ack()) {
    separate_ = message.join_ack().separate();
    kv_calls()->met_store(message.join_ack().instance());
  }
  deliver(Received{std::move(message)});
}

void Core::deliver(ClientEvent event) {
  const std::lock_guard lock(sink_mutex_);
  if (sink_) sink_(std::move(event));
}

void Core::send(const v1::FromAgent& message) {
  std::shared_ptr<ClientStream> stream;
  {
    const std::lock_guard lock(mutex_);
    stream = stream_;
  }
  if (!stream || (!message.has_join() && !stream->was_connected())) return;
  if (!watch_ || !message.has_join()) return stream->send(message);
  v1::FromAgent join = message;
  join.mutable_join()->set_term(obeyed_.load());
  stream->send(join);
}

void Core::kv(int worker_serial, const std::string& prefix, const control::KvRequest& request) {
  kv_calls()->start(worker_serial, prefix, request);
}

void Core::close(milliseconds timeout) {
  std::shared_ptr<ClientStream> stream;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    stream = stream_;
  }
  closing_changed_.notify_all();
  connector_.interrupt();
  if (watch_) watch_->interrupt();
  if (!stream) return;
  const auto deadline = Clock::now() + timeout;
  stream->half_close();
  if (!stream->was_connected() || !stream->wait_until_done(deadline)) stream->cancel();
}

void Core::silence() {
  const std::lock_guard lock(sink_mutex_);
  sink_ = nullptr;
}

void Core::quit() {
  close(milliseconds(0));
  silence();
  kv_calls()->cancel();
}

class GrpcClient final : public Client {
 public:
  GrpcClient(const ClientOptions& options, Sink sink)
      : core_(std::make_shared<Core>(options, std::move(sink))) {
    core_->watch();
    thread_ = std::thread([core = core_] { core->run(); });
  }

  ~GrpcClient() override {
    core_->quit();
    // Here: the watch's own threads could be the last to hold the core.
    if (core_->let_go(thread_)) core_->stop_watching();
  }

  void send(const v1::FromAgent& message) override { core_->send(message); }
  void kv(int worker_serial, const std::string& prefix, const control::KvRequest& request) override {
    core_->kv(worker_serial, prefix, request);
  }
  void close(milliseconds timeout) override { core_->close(timeout); }

 private:
  const std::shared_ptr<Core> core_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Client> Client::start(const ClientOptions& options, Sink sink) {
  set_up_grpc();
  return std::make_unique<GrpcClient>(options, std::move(sink));
}

}  // namespace dtrun::rendezvous
