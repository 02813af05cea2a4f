// One host's part in elections, message by message. Golden traces: each file under traces/ holds commands and
// everything that the host says in reply. DTRUN_REWRITE_TRACES=1 writes what the code does now, to be
// reviewed as a diff.
//
// "start hosts=3 self=1 [alone]" begins at time 0; then "TIME VERB [key=value]…": probe, vote, renew, release
// (asks from=HOST term=T), yes, no (answers from=HOST to=probe|vote|renew term=T), heard, write and resign
// (term=T, else that of the moment), retire, run. Timers fire at their own time before each command, but not
// before "asleep until TIME".
#include "rendezvous/core/election/election.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>

namespace dtrun::rendezvous::election::election_test {
namespace {

constexpr const char* kKinds[] = {"pre_vote", "request_vote", "renew", "step_down"};

// Texts of the traces come later the later they are in the alphabet.
std::string both(const std::string& one, const std::string& other) { return std::max(one, other); }

std::string text_of(const RecordVersion& record_version) {
  return std::to_string(record_version.term) + "." + std::to_string(record_version.version);
}

std::string text_of(const std::optional<Record>& record) {
  return record ? ", record " + text_of(record->record_version) + " \"" + record->text + "\"" : "";
}

std::string text_of(const Action& action) {
  const std::string to = std::to_string(action.to) + ": ";
  if (const auto* ask = std::get_if<VoteRequest>(&action.body))
    return to + kKinds[ask->kind] + " in term " + std::to_string(ask->term) +
           (ask->serves ? ", serves" : "") + text_of(ask->record);
  if (const auto* answer = std::get_if<VoteReply>(&action.body))
    return to + (answer->granted ? "yes" : "no") + " to " + kKinds[answer->kind] + " in term " +
           std::to_string(answer->term) + ", knows " + std::to_string(answer->newest) + ", has " +
           text_of(answer->record_version) + text_of(answer->record);
  if (const auto* lead = std::get_if<BecomeLeader>(&action.body))
    return "leads in term " + std::to_string(lead->term) + (lead->again ? " again" : "") + ", record \"" +
           lead->record + "\"";
  if (std::holds_alternative<Forget>(action.body)) return "forgets";
  if (const auto* written = std::get_if<Written>(&action.body))
    return "a majority has version " + std::to_string(written->version);
  return "steps down";
}

class Scenario {
 public:
  std::string run(const std::string& line) {
    std::istringstream words(line);
    std::string first, verb;
    words >> first;
    out_.clear();
    if (first == "start") {
      read(words);
      state_ = begin(settings_for(number("hosts"), number("self"), has("alone"), both), 0);
      return out_;
    }
    if (first == "asleep") {
      Millis until = 0;
      words >> verb >> until;
      apply({.body = Tick{}}, until);
      return out_;
    }
    const Millis at = std::stoll(first);
    words >> verb;
    read(words);
    while (next_deadline(state_) <= at) {
      const Millis due = next_deadline(state_);
      apply({.body = Tick{}}, due);
      REQUIRE_MESSAGE(next_deadline(state_) > due, "a timer does not go away");
    }
    if (verb != "run") apply(event_of(verb), at);
    return out_;
  }

 private:
  void read(std::istream& words) {
    values_.clear();
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      values_[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
  }
  bool has(const std::string& key) const { return values_.contains(key); }
  template <typename T = int>
  T number(const std::string& key, T otherwise = 0) const {
    return has(key) ? static_cast<T>(std::stoll(values_.at(key))) : otherwise;
  }
  std::optional<Record> record() const {
    if (!has("record")) return std::nullopt;
    return Record{record_version("record"), has("text") ? values_.at("text") : ""};
  }
  RecordVersion record_version(const std::string& key) const {
    if (!has(key)) return {};
    const std::string& text = values_.at(key);
    return {std::stoll(text), std::stoll(text.substr(text.find('.') + 1))};
  }
  VoteRequest::Kind kind(const std::string& name) const {
    const auto* found = std::find(std::begin(kKinds), std::end(kKinds), name);
    REQUIRE_MESSAGE(found != std::end(kKinds), "unknown verb " << name);
    return static_cast<VoteRequest::Kind>(found - std::begin(kKinds));
  }

  Event event_of(const std::string& verb) const {
    Event event{.from = number("from", -1), .body = Tick{}};
    if (verb == "yes" || verb == "no")
      event.body = VoteReply{.kind = kind(values_.at("to")),
                             .term = number("term"),
                             .sent_at = number("asked"),
                             .granted = verb == "yes",
                             .newest = number("knows"),
                             .record_version = record_version("has"),
                             .record = record()};
    else if (verb == "write")
      event.body = Write{has("term") ? number<Term>("term") : state_.term, values_.at("text")};
    else if (verb == "heard")
      event.body = ObservedTerm{number<Term>("term")};
    else if (verb == "resign")
      event.body = Resign{has("term") ? number<Term>("term") : state_.term};
    else if (verb == "retire")
      event.body = Retire{};
    else
      event.body = VoteRequest{.kind = kind(verb),
                               .term = number("term"),
                               .sent_at = 7,
                               .serves = has("serves"),
                               .record = record()};
    return event;
  }

  void apply(const Event& event, Millis now) {
    for (const Action& action : step(state_, event, now))
      out_ += "  " + std::to_string(now) + " " + text_of(action) + "\n";
  }

  State state_;
  std::map<std::string, std::string> values_;
  std::string out_;
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

}  // namespace

TEST_CASE("a host says what the golden traces say, word for word") {
  const bool rewrite = std::getenv("DTRUN_REWRITE_TRACES") != nullptr;
  std::set<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(DTRUN_SOURCE_DIR "/tests/rendezvous/core/election/traces"))
    files.insert(entry.path());
  REQUIRE(files.size() >= 8);
  for (const auto& path : files) {
    CAPTURE(path.filename().string());
    const std::string expected = read(path);
    const std::string actual = replay(expected);
    if (rewrite) std::ofstream(path) << actual;
    CHECK((rewrite ? actual : expected) == actual);
  }
}

TEST_CASE("of a member's term a window is believed, and where no number is left none is made up") {
  constexpr Term kMost = std::numeric_limits<Term>::max();
  State state = begin(settings_for(3, 1, false, both), 0);
  const auto hear = [&](Term term) { return step(state, {.body = ObservedTerm{term}}, 0), state.newest; };
  CHECK(hear(-kMost) == 0);
  CHECK(hear(kFurthest) == kFurthest);
  CHECK(hear(2 * kFurthest + 1) == 2 * kFurthest);
  CHECK(hear(kMost) == 3 * kFurthest);
  CHECK(hear(3) == 3 * kFurthest);
  for (const Term newest : {kMost, kMost - 1, kMost - kFurthest}) {
    state.newest = newest;
    CHECK(hear(kMost) == newest);
    state.role = State::kFollower;
    state.stands_at = 0;
    step(state, {.body = Tick{}}, 10000);
    CHECK(state.role == State::kPreCandidate);
    CHECK(state.term > 0);
    CHECK(state.term % 3 == 1);
  }
}

TEST_CASE("a leader is known for as long as its voter is bound to it") {
  State state = begin(settings_for(3, 1, false, both), 0);
  step(state, {.from = 0, .body = VoteRequest{.kind = VoteRequest::kRenew, .term = 3, .serves = true}}, 100);
  const Millis bound_until = 100 + state.settings.lease;
  CHECK(known_leader(state, bound_until - 1) == Leader{3, 0});
  CHECK(known_leader(state, bound_until) == Leader{});
}

// For any messages, in any order, from any host: a host keeps its promises.
TEST_CASE("a host never votes twice in a term, nor for another one while it is bound") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
    const int hosts = 3 + below(3), self = below(hosts);
    State state = begin(settings_for(hosts, self, false, both), 0);
    std::map<Term, int> voted;
    int bound_to = -1;
    Millis now = 0, bound_until = state.settings.abstain;
    Term highest = 0;
    for (int i = 0; i < 400; ++i) {
      now += below(100);
      const auto from = static_cast<int>(random() % static_cast<std::uint64_t>(hosts + 1)) - below(2);
      Event event{.from = from, .body = Tick{}};
      const Term term = below(12);
      switch (below(6)) {
        case 0:
          event.body = VoteReply{.kind = static_cast<VoteRequest::Kind>(below(3)),
                                 .term = below(2) == 0 ? state.term : term,
                                 .sent_at = now - below(50),
                                 .granted = below(3) > 0,
                                 .newest = below(12),
                                 .record_version = {below(12), below(3)}};
          break;
        case 1:
          event.body = ObservedTerm{below(14)};
          break;
        case 2:
          break;
        default:
          event.body =
              VoteRequest{.kind = static_cast<VoteRequest::Kind>(below(3)), .term = term, .sent_at = 1};
      }
      const auto* ask = std::get_if<VoteRequest>(&event.body);
      const bool led = state.role == State::kLeader;
      for (const Action& action : step(state, event, now)) {
        const auto* answer = std::get_if<VoteReply>(&action.body);
        if (answer == nullptr || !answer->granted || answer->kind == VoteRequest::kPreVote) continue;
        REQUIRE(ask != nullptr);
        CAPTURE(seed);
        CHECK(voted.try_emplace(term, from).first->second == from);
        CHECK(term >= highest);
        if (answer->kind == VoteRequest::kRequestVote && from != bound_to) CHECK((now >= bound_until || led));
        highest = term;
        bound_to = from;
        bound_until = now + state.settings.lease;
      }
      CHECK(next_deadline(state) > now - 1);
      CHECK(leads_until(state) <= now + state.settings.lease);
      if (state.role == State::kLeader) {
        voted.try_emplace(state.term, self);
        highest = std::max(highest, state.term);
        bound_to = self;
        bound_until = leads_until(state);
      }
    }
  }
}

}  // namespace dtrun::rendezvous::election::election_test
