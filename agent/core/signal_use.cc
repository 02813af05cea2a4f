#include "agent/core/signal_use.h"

#include <algorithm>
#include <csignal>

namespace dtrun::agent {

SignalUse use_of_signal(int number, const JobSpec& spec) {
  if (std::ranges::count(spec.signals_to_handle, number) > 0) return SignalUse::kEnds;
  switch (number) {
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
      return SignalUse::kEnds;
    case SIGUSR1:
    case SIGUSR2:
      // dtrun-worker has no use for them.
      if (!std::holds_alternative<BuiltinTrainer>(spec.program)) return SignalUse::kForWorkers;
      return spec.may_be_started_again ? SignalUse::kEnds : SignalUse::kNone;
    case SIGCONT:
      return SignalUse::kForWorkers;
    case SIGTSTP:
      return SignalUse::kStops;
    default:
      return SignalUse::kNone;
  }
}

}  // namespace dtrun::agent
