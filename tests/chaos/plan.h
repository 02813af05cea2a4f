// A round of chaos as data: its job, its kills and their times, all drawn from one number, so that a round
// that failed can be run again. The allowed outcomes follow from the contract.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace dtrun::test {

enum class Shape {
  kStandalone,  // one agent
  kPair,        // --nnodes 2; the first agent hosts the coordinator
  kElastic,     // --nnodes 1:2; likewise
  kStore,       // --nnodes 2, the coordinator is a `dtrun store`
};

enum class Victim { kWorker, kFirstAgent, kSecondAgent, kStore };

struct Plan {
  Shape shape = Shape::kStandalone;
  Victim victim = Victim::kWorker;
  bool builtin = false;  // the built-in trainer instead of chaos_worker
  bool returns = false;  // the killed agent or store is started again
  int max_restarts = 0;
  int work_ms = 0;        // how long a worker works, were it left alone
  int kill_after_ms = 0;  // from the start of the job; a worker's, from when workers run
  int return_after_ms = 0;
  int which_worker = 0;

  int agents() const { return shape == Shape::kStandalone ? 1 : 2; }
  std::string describe() const;
};

Plan draw_plan(std::uint64_t seed, bool builtin);

// Exit codes that the contract allows an agent that was not itself killed. Two agents that see the job's end
// agree.
std::set<int> allowed_codes(const Plan& plan);

}  // namespace dtrun::test
