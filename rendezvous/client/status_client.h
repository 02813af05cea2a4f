// Asks a coordinator for the status of its runs, or for what their workers do: one call on a connection of
// its own.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "proto/core/status.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// The status of one run, or of all if `run_id` is empty. A failure has EX_UNAVAILABLE, or EX_NOPERM of a key,
// and names the endpoint. `host` may be "unix:PATH", which needs no key, or a list_text(): the host that
// leads answers.
Result<v1::StatusReply> fetch_status(const std::string& host, int port, const std::string& run_id,
                                     std::chrono::milliseconds timeout,
                                     const std::optional<JobKey>& key = {});

// The answer of the coordinator to one call of a trace. Failures as fetch_status().
Result<v1::TraceReply> fetch_trace(const std::string& host, int port, const v1::TraceRequest& request,
                                   std::chrono::milliseconds timeout, const std::optional<JobKey>& key = {});

// Waits in the background for the end of a run: an agent's coordinator goes with its run, but not before it
// has answered. For one thread.
class EndOfRun {
 public:
  EndOfRun(const std::string& host, int port, const std::string& run_id,
           const std::optional<JobKey>& key = {});
  ~EndOfRun();  // gives up at once
  EndOfRun(const EndOfRun&) = delete;

  // The run as it was when it was over, as soon as that is known; none after `limit`.
  std::optional<v1::RunStatus> wait_for(std::chrono::milliseconds limit);
  // The answer will not come: no connection, or the run is not known there.
  bool broken() const;

 private:
  struct StatusCall;
  const std::shared_ptr<StatusCall> call_;
  std::thread thread_;
};

}  // namespace dtrun::rendezvous
