#include "cmd/commands/status/end_of_watch.h"

#include "proto/core/exit_codes.h"

namespace dtrun::cmd {
namespace {

// A store that is started again is back by then, and knows its runs. An agent's coordinator does not come
// back.
constexpr std::chrono::seconds kUntilGone{10};

}  // namespace

std::optional<Status> EndOfWatch::see(const Observation& look, Time now) {
  switch (look.found) {
    case Observation::Finding::kOver:
      if (!until_.empty())
        return Status(kExitUnavailable, "run " + run_id_ + " is over, exit code " +
                                            std::to_string(look.exit_code) + ", and was not seen " + until_);
      return Status(exit_status_ ? look.exit_code : kExitOk, "");
    case Observation::Finding::kRun:
      seen_ = true;
      missed_since_.reset();
      return std::nullopt;
    case Observation::Finding::kNoSuchRun:
    case Observation::Finding::kNoAnswer:
      break;
  }
  const bool may_begin = !until_.empty() && look.exit_code != kExitNoPermission;
  if (!seen_) return may_begin ? std::nullopt : std::optional(unknown(look));
  if (!missed_since_) missed_since_ = now;
  if (now - *missed_since_ < kUntilGone) return std::nullopt;
  return lost(look);
}

Status EndOfWatch::unknown(const Observation& look) const {
  if (look.found == Observation::Finding::kNoAnswer) return Status(look.exit_code, look.why);
  return Status(kExitUnavailable, "no run " + run_id_ + " at " + where_ +
                                      ": it has not begun, or is over and forgotten (dtrun status "
                                      "--rdzv_endpoint " +
                                      where_ + " shows all that it knows)");
}

Status EndOfWatch::lost(const Observation& look) const {
  const std::string gone = look.found == Observation::Finding::kNoAnswer
                               ? "the coordinator of run " + run_id_ + " at " + where_ + " is gone"
                               : "run " + run_id_ + " is no longer known at " + where_;
  return Status(kExitUnavailable, gone +
                                      ", and did not say how the run ended (see what its agents said, or "
                                      "report.json in their --log_dir)");
}

}  // namespace dtrun::cmd
