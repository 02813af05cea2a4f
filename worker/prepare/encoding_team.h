// Threads that encode units; the results come out in the order in which the units went in.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "worker/prepare/encode_unit.h"

namespace dtrun::worker {

class EncodingTeam {
 public:
  // REQUIRES: inputs, rules and tokenizer outlive the team.
  EncodingTeam(const Inputs& inputs, const EncodingRules& rules, const Tokenizer& tokenizer, int threads);
  ~EncodingTeam();
  EncodingTeam(const EncodingTeam&) = delete;

  // The functions below are called by one thread, which hands units in and takes tokens out.
  bool has_room() const { return jobs_.size() < most_; }
  bool is_empty() const { return jobs_.empty(); }
  void hand_in(Unit unit);
  // Waits for the tokens of the oldest unit; nothing if they are not ready within `patience`.
  // REQUIRES: !is_empty().
  std::optional<Result<UnitTokens>> take_out(std::chrono::milliseconds patience);

 private:
  struct EncodingJob {
    Unit unit;
    std::optional<Result<UnitTokens>> result;  // guarded by mutex_
  };
  void run();

  const Inputs& inputs_;
  const EncodingRules& rules_;
  const Tokenizer& tokenizer_;
  const std::size_t most_;
  std::deque<std::shared_ptr<EncodingJob>> jobs_;  // the oldest first

  std::mutex mutex_;  // guards the members below, and results
  std::condition_variable waits_for_work_, waits_for_result_;
  std::deque<std::shared_ptr<EncodingJob>> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dtrun::worker
