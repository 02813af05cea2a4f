#include "cmd/check/run_store.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>

#include "proto/core/contract.h"

namespace dtrun::cmd {
namespace {

using Clock = std::chrono::steady_clock;

// From a coordinator that is there, also one that has just been elected.
constexpr std::chrono::seconds kForAnswer{30};

}  // namespace

Result<RunStore> RunStore::open() {
  const char* const fd = std::getenv(kEnvControlFd);
  if (fd == nullptr) return Status(kExitUsage, "this is for `dtrun doctor` itself to start");
  return RunStore(std::atoi(fd));
}

Status RunStore::set(const std::string& key, const std::string& value) {
  control::KvRequest request;
  request.set_op(control::KvRequest::SET);
  request.set_key(key);
  request.set_value(value);
  return ask(std::move(request)).status();
}

Result<std::string> RunStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  control::KvRequest request;
  request.set_op(control::KvRequest::GET);
  request.set_key(key);
  request.set_timeout_ms(timeout.count());
  return ask(std::move(request));
}

// What else the agent says is for workers that train.
Result<std::string> RunStore::ask(control::KvRequest request) {
  const Status gone(kExitUnavailable, "the agent is gone");
  const auto deadline = Clock::now() + std::chrono::milliseconds(request.timeout_ms()) + kForAnswer;
  const std::string key = request.key();
  request.set_id(++requests_);
  control::FromWorker message;
  *message.mutable_kv() = std::move(request);
  if (!write_all(socket_.get(), frame_of(message))) return gone;
  for (;;) {
    ASSIGN_OR_RETURN(auto reply, messages_.next());
    if (reply && reply->has_kv() && reply->kv().id() == requests_)
      return reply->kv().ok() ? Result(reply->kv().value()) : Status(kExitUnavailable, reply->kv().error());
    if (reply) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd answer{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (poll(&answer, 1, static_cast<int>(std::max<std::int64_t>(0, left))) == 0)
      return Status(kExitUnavailable, "the agent does not answer, asked for " + key);
    if (messages_.read_from(socket_.get()) == Portion::kEnd) return gone;
  }
}

}  // namespace dtrun::cmd
