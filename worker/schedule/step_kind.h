// Names the steps of a schedule for people. Pure.
#pragma once

#include <string>

#include "worker/schedule/cost.h"
#include "worker/schedule/schedule.h"

namespace dtrun::worker {

// Operations that do the same at different times, or for different nodes of a program.
struct OpKind {
  std::string what;  // "Linear 768 -> 3072 + GELU", "AdamW"
  std::string part;  // "forward", "weight gradient"; empty for an operation of no node
  auto operator<=>(const OpKind&) const = default;
};

// An operation as profiles know it.
struct TimedOp {
  OpKind kind;
  int node = -1;  // of the program; -1: no node
  OpCost cost;
  auto operator<=>(const TimedOp&) const = default;
};

namespace schedule {

// Whether the step does anything: Ready and Join do not.
bool is_work(const Step& step);

OpKind kind_of(const Program& program, const Step& step);
TimedOp timed_op(const Program& program, const Step& step);

}  // namespace schedule
}  // namespace dtrun::worker
