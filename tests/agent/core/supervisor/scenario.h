// A harness for the agent's decisions: events in, actions out as short text, time invented by the test.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/supervisor/decide.h"

namespace dtrun::agent::test {

using Trace = std::vector<std::string>;

}  // namespace dtrun::agent::test

namespace doctest {
template <>
struct StringMaker<dtrun::agent::test::Trace> {
  static String convert(const dtrun::agent::test::Trace& trace) {
    std::string text;
    for (const auto& line : trace) text += "\n    " + line;
    return text.c_str();
  }
};
}  // namespace doctest

namespace dtrun::agent::test {

inline Settings builtin(int nproc = 2) {
  Settings settings;
  settings.builtin = true;
  settings.nproc = nproc;
  settings.endpoint = "10.0.0.1:29400";
  settings.host = "b";
  return settings;
}

inline Settings external(int nproc = 2) {
  Settings settings = builtin(nproc);
  settings.builtin = false;
  return settings;
}

// Nodes are missing, and ten minutes left.
inline event::WaitStatus waiting(int joined, int nodes, Millis restart_in = 0,
                                 const std::string& reason = "") {
  event::WaitStatus waiting;
  waiting.joined = joined;
  waiting.min_nodes = waiting.max_nodes = nodes;
  waiting.restart_in = restart_in;
  waiting.reason = reason;
  waiting.left = 600000;
  return waiting;
}

inline event::News left(const std::string& host, Millis age = 0) {
  return {rendezvous::News::kLeft, host, host + " left (told to by SIGINT)", age};
}

inline event::Ended job_end(int exit_code) {
  event::Ended e;
  e.job.exit_code = exit_code;
  e.job.reason = "the reason";
  return e;
}

inline std::string text_of(const WorkerOutcome& outcome) {
  std::string text = "r" + std::to_string(outcome.rank);
  text += outcome.signal != 0 ? " signal " + std::to_string(outcome.signal)
                              : " code " + std::to_string(outcome.exit_code);
  if (outcome.collateral) text += " collateral";
  if (!outcome.retryable) text += " final";
  return text;
}

struct Describe {
  int nproc = 0;  // all of them are started if nothing else is said

  // " #2 (local 0, r2)"
  static std::string spawned(const std::vector<action::Spawn>& spawn) {
    std::string text;
    for (const action::Spawn& one : spawn)
      text += " #" + std::to_string(one.serial) + " (local " + std::to_string(one.local_rank) + ", r" +
              std::to_string(one.rank) + ")";
    return text.empty() ? " with the same workers" : text;
  }
  std::string operator()(const action::StartWorkers& a) const {
    return "start g" + std::to_string(a.assignment.generation) +
           (a.spawn.size() == static_cast<std::size_t>(nproc) ? "" : spawned(a.spawn));
  }
  std::string operator()(const action::WarmUp& a) const { return "warm up" + spawned(a.spawn); }
  std::string operator()(const action::AwaitGpus&) const { return "await gpus"; }
  std::string operator()(const action::AskGpu& a) const { return "ask gpu of #" + std::to_string(a.serial); }
  std::string operator()(const action::PlaceWorker& a) const {
    return "place #" + std::to_string(a.serial) + " as r" + std::to_string(a.rank);
  }
  std::string operator()(const action::Recovered& a) const {
    return "recovered at " + std::to_string(a.first_step) + ", kept " + std::to_string(a.kept) +
           ", replaced " + std::to_string(a.replaced) + ", took " + std::to_string(a.took) +
           (a.from_in_memory_checkpoint ? ", from the host's memory" : "");
  }
  std::string operator()(const action::PauseWorkers& a) const {
    return std::string(a.after_step ? "pause after step" : "pause") + (a.leaves ? " and leave" : "");
  }
  std::string operator()(const action::EndWorker& a) const {
    const std::string last = " last, r" + std::to_string(a.rank) + " of " + std::to_string(a.world_size);
    return "end #" + std::to_string(a.serial) + (a.last ? last : "");
  }
  std::string operator()(const action::SignalWorkers& a) const {
    return "signal " + std::to_string(a.number) + (a.only ? " only #" + std::to_string(*a.only) : "");
  }
  std::string operator()(const action::LookAtWorkers& a) const { return "look " + std::to_string(a.limit); }
  std::string operator()(const action::KillHung&) const { return "kill hung"; }
  std::string operator()(const action::AbortWorkers&) const { return "abort"; }
  std::string operator()(const action::SendJoin& a) const {
    return "join g" + std::to_string(a.running.generation) +
           (a.running.generation > 0 ? " as " + std::to_string(a.running.group_rank) : "");
  }
  std::string operator()(const action::SendHeartbeat&) const { return "heartbeat"; }
  std::string operator()(const action::SendFailure& a) const { return "failure " + text_of(a.outcome); }
  std::string operator()(const action::SendStopped& a) const {
    std::string text = "stopped";
    for (const auto& outcome : a.outcomes) text += " [" + text_of(outcome) + "]";
    return text + (a.workers ? " has " + std::to_string(*a.workers) : "");
  }
  std::string operator()(const action::SendReady&) const { return "ready"; }
  std::string operator()(const action::SendFinished& a) const {
    return "finished g" + std::to_string(a.generation);
  }
  std::string operator()(const action::SendLeave& a) const {
    return (a.soon ? "leave soon " : "leave ") + std::to_string(a.signal) + (a.replaced ? " replaced" : "");
  }
  std::string operator()(const action::AwaitMembers&) const { return "await members"; }
  std::string operator()(const action::DropOutput&) const { return "drop output"; }
  std::string operator()(const action::Print& a) const { return "print: " + a.text; }
  std::string operator()(const action::TellNews& a) const { return "news: " + a.text; }
  std::string operator()(const action::TellVerdict& a) const { return "verdict: " + a.verdict.text; }
  std::string operator()(const action::Report& a) const {
    return "report " + (a.job.first_failure ? text_of(*a.job.first_failure) : a.job.reason);
  }
  std::string operator()(const action::End& a) const { return "end " + std::to_string(a.exit_code); }
};

class Scenario {
 public:
  explicit Scenario(Settings settings) : state(initial_state(std::move(settings), 0)) {}

  // The trace of one event; printed text is kept apart in `printed`.
  Trace happens(const Event& event) {
    Trace trace;
    for (const Action& action : decide(state, event, now)) {
      if (const auto* print = std::get_if<action::Print>(&action)) {
        printed.push_back((print->of_node ? "of this node: " : "") + print->text);
      } else {
        trace.push_back(std::visit(Describe{state.settings.nproc}, action));
      }
    }
    return trace;
  }

  // Lets time pass to `until`, with a tick at each deadline on the way.
  Trace passes(Millis until) {
    Trace trace;
    int ticks = 0;
    while (next_deadline(state) && *next_deadline(state) <= until) {
      REQUIRE_MESSAGE(++ticks < 1000, "a deadline stays due");
      now = std::max(now, *next_deadline(state));
      for (auto& line : happens(event::Tick{})) trace.push_back(line);
    }
    now = until;
    return trace;
  }

  Trace exits(int local_rank, int code, int signal = 0, bool never_ran = false) {
    event::WorkerExited e;
    e.serial = serial(local_rank);
    e.outcome.local_rank = local_rank;
    e.outcome.exit_code = code;
    e.outcome.signal = signal;
    e.never_ran = never_ran;
    return happens(e);
  }

  int serial(int local_rank) const { return state.workers.all[static_cast<std::size_t>(local_rank)].serial; }

  // The worker waits for a place in a generation.
  Trace is_ready(int local_rank, std::optional<std::int64_t> step = {}, const std::string& error = "") {
    return happens(event::WorkerReady{.serial = serial(local_rank), .step = step, .error = error});
  }

  // Reports of a worker of the current generation.
  Trace progressed(std::int64_t step) {
    return happens(event::Progressed{{.step = step, .total_steps = 100}, state.generation.number()});
  }
  Trace trained(std::int64_t first_step, std::int64_t step, bool from_in_memory_checkpoint = false) {
    return happens(event::Progressed{{.step = step,
                                      .total_steps = 100,
                                      .first_step = first_step,
                                      .from_in_memory_checkpoint = from_in_memory_checkpoint},
                                     state.generation.number()});
  }

  // The connection breaks and is back at once.
  Trace reconnects(bool resumed) {
    happens(event::Disconnected{"connection reset", false});
    Trace trace = happens(event::Opened{hosting});
    happens(event::Connected{});
    for (auto& line : happens(event::JoinAck{"10.0.0.2", 1000, resumed})) trace.push_back(line);
    return trace;
  }

  // Connects and gets generation `g`: two nodes, this one is number 1 with ranks 2...
  Trace joins(std::int64_t g = 1, int restarts = 0, int nodes = 2) {
    Trace trace = happens(event::Opened{hosting});
    happens(event::Connected{});
    happens(event::JoinAck{"10.0.0.2", 1000});
    for (auto& line : assigned(g, restarts, "because", nodes)) trace.push_back(line);
    return trace;
  }

  Trace assigned(std::int64_t g, int restarts = 0, const std::string& reason = "because", int nodes = 2) {
    Assignment assignment;
    assignment.generation = g;
    assignment.group_rank = 1;
    assignment.world_size = 2 + state.settings.nproc;
    assignment.node_count = nodes;
    assignment.node = {"b", "10.0.0.2", state.settings.nproc, 2};
    assignment.restart_count = restarts;
    assignment.reason = reason;
    return happens(event::Assigned{assignment});
  }

  State state;
  Millis now = 0;
  bool hosting = false;  // the coordinator is in this process
  std::vector<std::string> printed;
};

inline bool printed(const Scenario& s, const std::string& text) {
  return std::any_of(s.printed.begin(), s.printed.end(),
                     [&](const auto& line) { return line.find(text) != std::string::npos; });
}

}  // namespace dtrun::agent::test
