#include "rendezvous/wire/grpc_setup.h"

#include <absl/synchronization/mutex.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "proto/core/text.h"
#include "proto/rendezvous.grpc.pb.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::string_view kUnix = "unix:";

void silence_unless_debugging() {
  const char* level = std::getenv("DTRUN_LOG_LEVEL");
  const std::string_view chosen = level != nullptr ? level : "";
  if (chosen == "debug" || chosen == "trace") return;
  gpr_set_log_function([](gpr_log_func_args*) {});
  // A message with a text that is no UTF-8 is refused to its sender; it need not be a line here, too.
  google::protobuf::SetLogHandler(nullptr);
}

// The distribution builds Abseil with its search for lock cycles, which keeps a graph of all of gRPC's locks.
void stop_looking_for_deadlocks() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

// A call on a channel to nowhere, never destroyed.
struct Pin {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Store::Stub> stub;
  grpc::ClientContext context;
  v1::GetRequest request;
  v1::GetReply reply;
};

// gRPC 1.51 ends its callback threads with the last channel or server that uses them. If one of those threads
// is the one to drop it, as after the last callback of a call, the process aborts ("prior > 0"); and joining
// them can take 100 ms. So one channel keeps them for good.
void pin_callback_threads() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
  static Pin* const pin = new Pin;
  pin->channel = grpc::CreateInsecureChannelFromFd("nowhere", ends[0]);
  pin->stub = v1::Store::NewStub(pin->channel);
  pin->context.TryCancel();
  pin->stub->async()->Get(&pin->context, &pin->request, &pin->reply, [](const grpc::Status&) {});
  close(ends[1]);
}

}  // namespace

void set_up_grpc() {
  static const bool done = [] {
    silence_unless_debugging();
    stop_looking_for_deadlocks();
    pin_callback_threads();
    return true;
  }();
  (void)done;
}

std::string unix_endpoint(const std::string& path) { return std::string(kUnix) + path; }

std::optional<std::string> unix_path(const std::string& host) {
  if (!host.starts_with(kUnix)) return std::nullopt;
  return host.substr(kUnix.size());
}

std::string list_text(const std::vector<std::string>& hosts) {
  if (hosts.size() == 1) return hosts.front();
  std::string text;
  for (const std::string& host : hosts) {
    const bool ipv6 = host.find(':') != std::string::npos;
    text += (text.empty() ? "" : ",") + (ipv6 ? "[" + host + "]" : host);
  }
  return text;
}

std::vector<std::string> hosts_of(const std::string& list) {
  if (unix_path(list) || list.find(',') == std::string::npos) return {list};
  std::vector<std::string> hosts;
  for (const std::string& host : split(list, ','))
    hosts.push_back(host.starts_with("[") ? host.substr(1, host.size() - 2) : host);
  return hosts;
}

std::string endpoint_text(const std::string& host, int port) {
  if (unix_path(host)) return host;
  const bool ipv6 = host.find(':') != std::string::npos && host.find(',') == std::string::npos;
  return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace dtrun::rendezvous
