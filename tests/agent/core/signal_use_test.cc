#include "agent/core/signal_use.h"

#include <doctest/doctest.h>

#include <csignal>

namespace dtrun::signal_use_test {

using namespace dtrun::agent;

namespace {

JobSpec of_a_program() {
  JobSpec spec;
  spec.program = ExternalProgram{};
  return spec;
}

JobSpec of_the_trainer() {
  JobSpec spec;
  spec.program = BuiltinTrainer{};
  return spec;
}

}  // namespace

TEST_CASE(
    "a program gets the signals that it may have a use for; those of a scheduler end the trainer's job") {
  CHECK(use_of_signal(SIGUSR1, of_a_program()) == SignalUse::kForWorkers);
  CHECK(use_of_signal(SIGUSR1, of_the_trainer()) == SignalUse::kNone);
  JobSpec scheduled = of_the_trainer();
  scheduled.may_be_started_again = true;
  CHECK(use_of_signal(SIGUSR1, scheduled) == SignalUse::kEnds);
}

TEST_CASE("signals that were asked for end the job, whatever else they are for") {
  JobSpec spec = of_a_program();
  spec.signals_to_handle = {SIGUSR2, SIGCONT};
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR2, SIGCONT})
    CHECK(use_of_signal(number, spec) == SignalUse::kEnds);
  CHECK(use_of_signal(SIGUSR1, spec) == SignalUse::kForWorkers);
}

TEST_CASE("a terminal stops and continues the workers together with their agent") {
  CHECK(use_of_signal(SIGTSTP, of_the_trainer()) == SignalUse::kStops);
  CHECK(use_of_signal(SIGCONT, of_the_trainer()) == SignalUse::kForWorkers);
  CHECK(use_of_signal(SIGWINCH, of_the_trainer()) == SignalUse::kNone);
}

}  // namespace dtrun::signal_use_test
