#include "tests/chaos/plan.h"

#include <random>

namespace dtrun::test {
namespace {

const char* name_of(Shape shape) {
  switch (shape) {
    case Shape::kStandalone:
      return "standalone";
    case Shape::kPair:
      return "two nodes";
    case Shape::kElastic:
      return "one to two nodes";
    case Shape::kStore:
      return "two nodes and a store";
  }
  return "";
}

const char* name_of(Victim victim) {
  switch (victim) {
    case Victim::kWorker:
      return "a worker";
    case Victim::kFirstAgent:
      return "the first agent";
    case Victim::kSecondAgent:
      return "the second agent";
    case Victim::kStore:
      return "the store";
  }
  return "";
}

Victim draw_victim(Shape shape, int draw) {
  switch (shape) {
    case Shape::kStandalone:
      return draw % 2 == 0 ? Victim::kWorker : Victim::kFirstAgent;
    case Shape::kPair:
    case Shape::kElastic:
      return static_cast<Victim>(draw % 3);
    case Shape::kStore:
      return static_cast<Victim>(draw % 4);
  }
  return Victim::kWorker;
}

}  // namespace

std::string Plan::describe() const {
  return std::string(name_of(shape)) +
         (builtin ? ", built-in trainer" : ", " + std::to_string(work_ms) + " ms of work") +
         ", --max_restarts " + std::to_string(max_restarts) + ": kill -9 of " + name_of(victim) +
         (victim == Victim::kWorker ? " " + std::to_string(which_worker) : "") + " after " +
         std::to_string(kill_after_ms) + " ms" +
         (returns ? ", back after " + std::to_string(return_after_ms) + " ms" : "");
}

Plan draw_plan(std::uint64_t seed, bool builtin) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  Plan plan;
  plan.shape = static_cast<Shape>(below(4));
  plan.victim = draw_victim(plan.shape, below(12));
  plan.builtin = builtin;
  const bool kills_host = plan.victim == Victim::kFirstAgent && plan.shape != Shape::kStore;
  plan.returns = below(2) == 0 && plan.victim != Victim::kWorker && !kills_host;
  plan.max_restarts = below(3);
  plan.work_ms = 200 + below(600);
  plan.kill_after_ms = below(plan.builtin ? 3000 : 1200);
  if (plan.victim == Victim::kWorker) plan.kill_after_ms = below(plan.builtin ? 1500 : plan.work_ms);
  plan.return_after_ms = below(1000);
  plan.which_worker = below(4);
  return plan;
}

std::set<int> allowed_codes(const Plan& plan) {
  constexpr int kDone = 0, kKilled = 128 + 9, kNoRendezvous = 69;
  switch (plan.victim) {
    case Victim::kWorker:
      // Without a restart left, the job may still have been over before the blow fell.
      return plan.max_restarts > 0 ? std::set{kDone} : std::set{kDone, kKilled};
    case Victim::kFirstAgent:
      // It hosts the coordinator, unless there is a store; then it is an agent like any other.
      return plan.returns ? std::set{kDone} : std::set{kDone, kNoRendezvous};
    case Victim::kSecondAgent:
      return plan.shape == Shape::kElastic || plan.returns ? std::set{kDone} : std::set{kDone, kNoRendezvous};
    case Victim::kStore:
      return plan.returns ? std::set{kDone} : std::set{kDone, kNoRendezvous};
  }
  return {};
}

}  // namespace dtrun::test
