// Golden traces: each file under traces/ holds commands and everything that the coordinator says in reply.
// The whole text is compared; DTRUN_REWRITE_TRACES=1 writes what the code does now, to be reviewed as a diff.
//
// A command is "TIME WHO VERB [key=value | flag]…" (milliseconds). WHO names a connection; its member id is
// the name without trailing apostrophes, so a' is a's second connection. Verbs: join, beat, fail, stopped,
// finished, leave, break; "TIME run" only lets time pass. Due timers fire at their own time before each
// command, but not between the command before and "asleep until TIME". Indented lines are the reply: time,
// receiver, message.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "proto/core/text.h"
#include "rendezvous/core/run/state.h"
#include "tests/rendezvous/core/run/text.h"

namespace dtrun::rendezvous::trace_test {
namespace {

// The arguments of a command: "exit=3" and "collateral" alike.
class Arguments {
 public:
  explicit Arguments(std::istream& words) {
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      values_[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
  }
  bool has(const std::string& key) {
    used_.insert(key);
    return values_.contains(key);
  }
  std::string text(const std::string& key, const std::string& otherwise) {
    return has(key) ? values_[key] : otherwise;
  }
  std::int64_t number(const std::string& key, std::int64_t otherwise) {
    return has(key) ? std::stoll(values_[key]) : otherwise;
  }
  std::string unused() const {
    for (const auto& [key, value] : values_)
      if (!used_.contains(key)) return key;
    return "";
  }

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> used_;
};

class Scenario {
 public:
  // Carries out one command line; the reply, as indented lines.
  std::string run(const std::string& line) {
    std::istringstream words(line);
    Millis at = 0;
    std::string who;
    std::string verb;
    words >> at >> who >> verb;
    out_.clear();
    if (line.starts_with("asleep until ")) {
      apply({.body = Tick{}}, std::stoll(line.substr(13)));
      return out_;
    }
    fire_until(at);
    if (who == "run") return out_;
    Arguments arguments(words);
    Event event = event_of(who, verb, arguments);
    REQUIRE_MESSAGE(arguments.unused().empty(), "unknown argument " << arguments.unused() << " in: " << line);
    apply(event, at);
    return out_;
  }

 private:
  void fire_until(Millis at) {
    while (next_deadline(state_) <= at) {
      const Millis due = next_deadline(state_);
      apply({.body = Tick{}}, due);
      REQUIRE_MESSAGE(next_deadline(state_) > due, "a timer does not go away");
    }
  }

  void apply(const Event& event, Millis now) {
    for (const Action& action : step(state_, event, now)) {
      out_ += "  " + std::to_string(now) + " " + name_of(action.to) + ": " + text_of(action) + "\n";
      generation_[action.to] = action.generation;
    }
  }

  ConnectionId connection(const std::string& who) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == who) return i + 1;
    names_.push_back(who);
    return names_.size();
  }
  std::string name_of(ConnectionId id) const { return names_.at(id - 1); }

  Event event_of(const std::string& who, const std::string& verb, Arguments& arguments) {
    Event event;
    event.from = connection(who);
    event.generation = arguments.number("gen", verb == "join" ? 0 : generation_[event.from]);
    if (verb == "join")
      event.body = join_of(who, arguments);
    else if (verb == "beat")
      event.body = beat_of(arguments);
    else if (verb == "fail")
      event.body = Failure{outcome_of(who, arguments)};
    else if (verb == "stopped")
      event.body = stopped_of(who, arguments);
    else if (verb == "finished")
      event.body = Finished{};
    else if (verb == "ready")
      event.body = Ready{};
    else if (verb == "leave")
      event.body = Leave{.signal = static_cast<int>(arguments.number("signal", 0)),
                         .soon = arguments.has("soon"),
                         .replaced = arguments.has("replaced")};
    else if (verb == "break")
      event.body = StreamBroken{};
    else
      FAIL("unknown verb " << verb);
    return event;
  }

  static Heartbeat beat_of(Arguments& arguments) {
    Heartbeat beat;
    beat.outlives = arguments.has("outlives");
    if (const auto step = arguments.number("step", 0); step != 0) beat.progress = Progress{.step = step};
    return beat;
  }

  Join join_of(const std::string& who, Arguments& arguments) {
    Join join;
    join.member_id = who.substr(0, who.find('\''));
    join.run_id = arguments.text("run", "r1");
    join.host = arguments.text("host", "node-" + join.member_id);
    join.address = arguments.text("address", "10.0.0." + join.member_id);
    join.nproc = static_cast<int>(arguments.number("nproc", 1));
    join.node_rank = static_cast<int>(arguments.number("node_rank", -1));
    if (arguments.has("prefers")) join.preferred_rank = static_cast<int>(arguments.number("prefers", 0));
    const std::string nnodes = arguments.text("nnodes", "1:4");
    join.min_nodes = std::stoi(nnodes);
    join.max_nodes = std::stoi(nnodes.substr(nnodes.find(':') + 1));
    join.max_restarts = static_cast<int>(arguments.number("restarts", 1));
    join.crash_loop_limit = static_cast<int>(arguments.number("crash_loop_limit", 0));
    if (arguments.has("runs")) join.command = {"w.py", arguments.text("runs", "")};
    join.last_call = arguments.number("last_call", 5000);
    join.join_timeout = arguments.number("join_timeout", 60000);
    join.heartbeat_timeout = arguments.number("heartbeat_timeout", 1000000);
    join.job = arguments.text("job", "");
    join.master_port = static_cast<int>(arguments.number("port", 1000));
    join.group_rank = static_cast<int>(arguments.number("had", -1));
    join.node_count = static_cast<int>(arguments.number("of", 0));
    join.world_size = static_cast<int>(arguments.number("world", join.node_count));
    join.first_rank = static_cast<int>(arguments.number("first", join.group_rank));
    join.restart_count = static_cast<int>(arguments.number("restarted", 0));
    join.membership_changes = static_cast<int>(arguments.number("changes", 0));
    join.crash_history = history_of(arguments);
    join.age = arguments.number("age", 0);
    if (arguments.has("hosts_were")) join.seat_hosts = split(arguments.text("hosts_were", ""), ',');
    join.hosts = arguments.has("hosts");
    join.workers = static_cast<int>(arguments.number("workers", 0));
    join.in_memory_recovery = arguments.has("warms");
    join.least_workers = static_cast<int>(arguments.number("least", 1));
    return join;
  }

  static CrashHistory history_of(Arguments& arguments) {
    CrashHistory history;
    history.quick_restarts = static_cast<int>(arguments.number("quick", 0));
    history.best_step = arguments.number("best", 0);
    history.alike = static_cast<int>(arguments.number("alike", 0));
    history.exit_code = static_cast<int>(arguments.number("last_exit", 0));
    return history;
  }

  WorkerOutcome outcome_of(const std::string& who, Arguments& arguments) {
    WorkerOutcome outcome;
    outcome.host = "node-" + who.substr(0, who.find('\''));
    outcome.rank = static_cast<int>(arguments.number("rank", 0));
    outcome.exit_code = static_cast<int>(arguments.number("exit", 0));
    outcome.signal = static_cast<int>(arguments.number("signal", 0));
    outcome.collateral = arguments.has("collateral");
    outcome.retryable = !arguments.has("final");
    outcome.uptime_s = static_cast<double>(arguments.number("up", 60));
    return outcome;
  }

  Stopped stopped_of(const std::string& who, Arguments& arguments) {
    Stopped stopped;
    if (arguments.has("rank")) stopped.outcomes.push_back(outcome_of(who, arguments));
    if (const auto kept = arguments.number("kept", -1); kept >= 0) stopped.workers = static_cast<int>(kept);
    stopped.parted = arguments.has("parted");
    return stopped;
  }

  State state_;
  std::string out_;
  std::vector<std::string> names_;  // of connections 1, 2, …
  std::map<ConnectionId, std::int64_t> generation_;
};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The file as it should be: its commands and comments, with the replies that the code gives.
std::string replay(const std::string& trace) {
  Scenario scenario;
  std::string result;
  std::istringstream lines(trace);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) continue;
    result += line + "\n";
    if (!line.empty() && line.front() != '#') result += scenario.run(line);
  }
  return result;
}

std::string first_difference(const std::string& expected, const std::string& actual) {
  std::istringstream expected_lines(expected);
  std::istringstream actual_lines(actual);
  std::string want;
  std::string got;
  for (int number = 1;; ++number) {
    const bool more = static_cast<bool>(std::getline(expected_lines, want));
    const bool other = static_cast<bool>(std::getline(actual_lines, got));
    if (!more) want = "(end)";
    if (!other) got = "(end)";
    if (want != got)
      return "line " + std::to_string(number) + "\n  expected: " + want + "\n  actual:   " + got;
    if (!more && !other) return "";
  }
}

}  // namespace

TEST_CASE("the coordinator answers every golden trace word for word") {
  const bool rewrite = std::getenv("DTRUN_REWRITE_TRACES") != nullptr;
  std::set<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(DTRUN_SOURCE_DIR "/tests/rendezvous/core/run/traces"))
    if (entry.path().extension() == ".txt") files.insert(entry.path());
  REQUIRE(files.size() >= 15);
  for (const auto& path : files) {
    const std::string expected = read(path);
    const std::string actual = replay(expected);
    if (rewrite) std::ofstream(path) << actual;
    CHECK_MESSAGE((rewrite || expected == actual), path.filename().string()
                                                       << ": " << first_difference(expected, actual));
  }
}

}  // namespace dtrun::rendezvous::trace_test
