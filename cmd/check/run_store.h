// The key-value store of a run, for a program that its agent started: the worker's end of
// proto/control.proto.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "proto/base/descriptor.h"
#include "proto/base/framed_channel.h"
#include "proto/control.pb.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// Blocking; for one thread.
class RunStore {
 public:
  // Of this process, from its environment. EX_USAGE if no agent started it.
  static Result<RunStore> open();

  // EX_UNAVAILABLE: the agent is gone, or does not answer.
  Status set(const std::string& key, const std::string& value);
  // Waits for the key. EX_UNAVAILABLE also if it does not come.
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout);

 private:
  explicit RunStore(int fd) : socket_(fd) {}
  Result<std::string> ask(control::KvRequest request);

  Descriptor socket_;
  MessageReader<control::FromAgent> messages_;
  std::uint64_t requests_ = 0;
};

}  // namespace dtrun::cmd
