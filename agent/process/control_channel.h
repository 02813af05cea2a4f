// The agent's end of the control socket to one worker: messages of proto/control.proto both ways, as frames
// or as lines of JSON, whichever the worker has begun with. Never blocks.
#pragma once

#include <functional>
#include <string>

#include "agent/system/loop.h"
#include "proto/base/descriptor.h"
#include "proto/control.pb.h"
#include "proto/core/framing.h"

namespace dtrun::agent {

class ControlChannel {
 public:
  using OnMessage = std::function<void(const control::FromWorker&)>;
  using OnError = std::function<void(const std::string&)>;  // the worker broke the protocol

  // Takes a non-blocking stream socket. The callbacks may send, but not destroy the channel.
  ControlChannel(Loop& loop, Descriptor socket, OnMessage on_message, OnError on_error);
  ~ControlChannel() { close(); }
  ControlChannel(const ControlChannel&) = delete;

  // Queued and written as the worker takes it; dropped before it has said anything, and once it has closed
  // its end.
  void send(const control::FromAgent& message);

  // False once the worker has closed its end, or broken the protocol. Of that worker all is read on, and
  // means nothing: it may end as it would.
  bool open() const { return socket_.open() && !broken_; }

  // Reads the remaining messages after the worker's end, then closes.
  void drain_and_close();

 private:
  void ready(std::uint32_t events);
  void take_messages();
  Result<std::optional<control::FromWorker>> next();
  void write_some();
  void fail(const std::string& error);
  void pass_over();
  void close();

  Loop& loop_;
  Descriptor socket_;
  OnMessage on_message_;
  OnError on_error_;
  FrameReader frames_{FrameReader::Takes::kLinesToo};
  std::string out_;
  bool broken_ = false;
};

}  // namespace dtrun::agent
