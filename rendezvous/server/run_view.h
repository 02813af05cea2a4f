// What the coordinator shows of a run to people who look on (rendezvous/http).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/observe/history.h"

namespace dtrun::rendezvous {

// How much of a run's history a reader has. Another coordinator, and another run of the same id, has another
// history.
struct HistoryMark {
  std::string history = {};  // empty: none of it
  std::int64_t serial = 0;
};

struct RunView {
  v1::RunStatus status;
  HistoryMark until;  // of the whole history
  History history;    // newer than asked for
  Millis now = 0;     // by the clock of the history's times
  // What all its nodes run: the resolved config of the built-in trainer, or the words of a program. Either is
  // empty.
  std::string config = {};
  std::vector<std::string> command = {};
};

// The page of the coordinator's runs, for RunStatus.page.
struct PageAddress {
  std::string address;  // "http://127.0.0.1:40123"
  std::string host;     // that it is on
  std::function<std::string(const std::string& run_id)> token;
};

}  // namespace dtrun::rendezvous
