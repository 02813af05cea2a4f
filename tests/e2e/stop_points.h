// Jobs whose workers die at stop points and not after a time. Each job must end well, with the bytes and the
// metrics of a run without a failure; a survivor goes on with what it holds; and nothing is left behind.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>

#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/training.h"

namespace dtrun::test {

inline constexpr int kSteps = 30, kSaveSteps = 5, kEvalSteps = 10;
// A step in the middle, away from checkpoints and evaluations.
inline constexpr int kStep = 8;
// The step at which the survivor waits for the replacement.
inline constexpr int kHeldAt = 12;

// One stop of tests/e2e/stop_point_worker.cc. Marks are files that the test and its workers share.
struct Stop {
  std::string point;
  int rank = 0;
  int count = 1;
  int signal = 0;
  std::string given = {}, once = {};
  std::vector<std::string> after = {};
};

Stop killed(const std::string& point, int rank, int count = 1);
// What tells the workers of them; marks are in that folder.
std::string variable_of(const std::vector<Stop>& stops, const std::filesystem::path& marks);
// No worker dies before all have come there.
std::vector<Stop> killed_together(const std::string& point, const std::vector<int>& ranks, int count);

// A job's programs, output and marks.
class Site {
 public:
  Site();
  std::filesystem::path path() const { return programs_.path(); }
  std::string dtrun() const { return programs_.dtrun(); }
  std::filesystem::path output() const { return path() / "out"; }
  std::filesystem::path mark(const std::string& name) const { return path() / name; }

  std::vector<std::string> environment(const std::vector<Stop>& stops) const {
    return {variable_of(stops, path())};
  }
  std::vector<std::string> command(const std::vector<std::string>& options,
                                   const std::vector<std::string>& more = {}) const;

 private:
  const Programs programs_;
};

// Makes the run without a failure, whose result every other run must equal, if that is not done yet.
void make_calm_run();
// Checks that the job's results equal those of the calm run, and that no other files are left.
void check_results(const Site& site);

// Steps done where generations begin.
struct Starts {
  long from = 0, to = 0;  // of the second generation: the steps that its survivors hold
  bool third = false;     // whether the replacements are taken in with a third one
};

struct Case {
  std::string name;
  int workers = 2;
  std::vector<Stop> stops = {};
  std::optional<Starts> starts = {};   // none: nobody needs to survive
  int in_memory_checkpoint_steps = 0;  // not 0: there are no checkpoints
};

// A survivor waits in a step until the replacement of `lost` is ready and it is told to pause for it.
void take_in(Case& one, int survivor, const std::vector<int>& lost);
// Checks the step at which a generation with a replacement began.
void check_taken_in(long start, int workers);

std::vector<std::string> without_checkpoints(int in_memory_checkpoint_steps);

// Runs the jobs, several at a time, and checks each: most of a job's time is waiting.
void play(std::deque<Case> cases);

std::vector<long> numbers_after(const std::string& words, const std::string& text);

}  // namespace dtrun::test
