#include "cmd/commands/status/end_of_watch.h"

#include "proto/core/exit_codes.h"

namespace dtrun::cmd {

std::optional<Status> EndOfWatch::see(const Observation& look, Time now) {
  switch (look.found) {
    case Observation::Finding::kOver:
      if (!settings_.until.empty())
        return Status(kExitUnavailable, "run " + settings_.run_id + " is over, exit code " +
                                            std::to_string(look.exit_code) + ", and was not seen " +
                                            settings_.until);
      return Status(settings_.exit_status ? look.exit_code : kExitOk, "");
    case Observation::Finding::kRun:
      seen_ = true;
      missed_since_.reset();
      return std::nullopt;
    case Observation::Finding::kNoSuchRun:
    case Observation::Finding::kNoAnswer:
      break;
  }
  const bool may_begin = !settings_.until.empty() && look.exit_code != kExitNoPermission;
  if (!seen_) return may_begin ? std::nullopt : std::optional(unknown(look));
  if (!missed_since_) missed_since_ = now;
  if (now - *missed_since_ < settings_.until_gone) return std::nullopt;
  return lost(look);
}

Status EndOfWatch::unknown(const Observation& look) const {
  if (look.found == Observation::Finding::kNoAnswer) return Status(look.exit_code, look.why);
  return Status(kExitUnavailable, "no run " + settings_.run_id + " at " + settings_.where +
                                      ": it has not begun, or is over and forgotten (dtrun status "
                                      "--rdzv_endpoint " +
                                      settings_.where + " shows all that it knows)");
}

Status EndOfWatch::lost(const Observation& look) const {
  const std::string gone =
      look.found == Observation::Finding::kNoAnswer
          ? "the coordinator of run " + settings_.run_id + " at " + settings_.where + " is gone"
          : "run " + settings_.run_id + " is no longer known at " + settings_.where;
  return Status(kExitUnavailable, gone +
                                      ", and did not say how the run ended (see what its agents said, or "
                                      "report.json in their --log_dir)");
}

}  // namespace dtrun::cmd
