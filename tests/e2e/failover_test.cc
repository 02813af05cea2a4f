// Three machines of which each may be the coordinator: network namespaces, real processes. The host that
// leads is killed, cut off (both ways, or one), or stands still, at random moments; another one takes over,
// nobody's workers are paused by that, and the model has the bytes of an undisturbed run. DTRUN_ROUNDS=N
// plays N rounds of any kind instead of one, with pauses of 30 s; DTRUN_SEED begins them elsewhere.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "tests/e2e/hosts.h"
#include "tests/e2e/stop_points.h"
#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::failover_test {

using namespace dtrun::test;

namespace {

using std::chrono::milliseconds;

constexpr double kFailover = 1.5;  // seconds in which each process has a processor

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Joined {
  double at = 0;  // seconds since 1970
  bool leads = false;
};

// The events in an agent's events.jsonl.
class Events {
 public:
  explicit Events(std::string text) : text_(std::move(text)) {}

  std::vector<Joined> joins() const {
    std::vector<Joined> found;
    each([&](const std::string& line) {
      if (contains(line, "\"event\":\"join\""))
        found.push_back({std::atof(line.c_str() + line.find(":") + 1), contains(line, "\"hosting\":true")});
    });
    return found;
  }
  int count(const std::string& event) const {
    int found = 0;
    each([&](const std::string& line) { found += contains(line, "\"event\":\"" + event + "\""); });
    return found;
  }

 private:
  template <typename Body>
  void each(Body body) const {
    std::istringstream lines(text_);
    for (std::string line; std::getline(lines, line);) body(line);
  }
  const std::string text_;
};

class Trio {
 public:
  Trio(int count, std::vector<std::string> options) : hosts(count), options_(std::move(options)) {
    for (int host = 0; host < count; ++host) {
      list_ += (host > 0 ? "," : "") + Hosts::address(host);
      agents_.push_back(nullptr);
    }
  }

  void start(int host) {
    std::vector<std::string> argv{"--rdzv_endpoint",  list_ + ":29400",
                                  "--rdzv_id",        "trio",
                                  "--nproc_per_node", "1",
                                  "--lanes",          "1",
                                  "--log_dir",        (hosts.directory() / "log").string()};
    argv.insert(argv.end(), options_.begin(), options_.end());
    agents_[static_cast<std::size_t>(host)] = std::make_unique<Process>(
        hosts.on(host, endless_training(argv, hosts.directory() / "out", {"train.save_steps=1000000"})));
  }
  void start_all() {
    for (int host = 0; host < count(); ++host) start(host);
  }
  int count() const { return static_cast<int>(agents_.size()); }
  Process& agent(int host) { return *agents_[static_cast<std::size_t>(host)]; }

  Events events(int host) const {
    return Events(read_if_there(hosts.seen_from_here(host, "log/trio/events.jsonl")));
  }
  std::vector<std::filesystem::path> outputs() const {
    std::vector<std::filesystem::path> all;
    for (int host = 0; host < count(); ++host) all.push_back(hosts.seen_from_here(host, "out"));
    return all;
  }
  long steps() const {
    long most = 0;
    for (const auto& output : outputs()) most = std::max(most, steps_done(output));
    return most;
  }
  bool trains(long steps) const {
    return eventually([&] { return this->steps() >= steps; });
  }
  bool goes_on() const { return trains(steps() + 10); }
  // All agents that are left.
  void end_as_calm(const std::vector<int>& of) const {
    std::vector<Process*> agents;
    for (const int host : of) agents.push_back(agents_[static_cast<std::size_t>(host)].get());
    dtrun::test::end_as_calm(agents, outputs());
  }
  // The host whose agent found itself the leader when it joined last; -1: none.
  int leader() const {
    int leader = -1;
    double newest = 0;
    for (int host = 0; host < count(); ++host) {
      const std::vector<Joined> joins = events(host).joins();
      if (joins.empty() || !joins.back().leads || joins.back().at < newest) continue;
      leader = host;
      newest = joins.back().at;
    }
    return leader;
  }
  // Seconds until all others had joined again, of whom one leads, without those in which somebody had no
  // processor; -1: never. `watch` runs from `since` on.
  double failover_from(int gone, double since, const Stopwatch& watch) const {
    double last = 0;
    const bool done = eventually([&] {
      int led = 0;
      last = 0;
      for (int host = 0; host < count(); ++host) {
        if (host == gone) continue;
        const std::vector<Joined> joins = events(host).joins();
        if (joins.empty() || joins.back().at < since) return false;
        led += joins.back().leads;
        last = std::max(last, joins.back().at);
      }
      return led == 1;
    });
    const std::chrono::duration<double> stall = watch.wall() - watch.fair();
    return done ? std::max(0.0, last - since - stall.count()) : -1;
  }
  std::string said() const {
    std::string all;
    for (const auto& agent : agents_)
      if (agent) all += agent->err() + "----\n";
    return all;
  }
  // Nothing comes in any more ("input"), or nothing goes out ("output").
  void filter(int host, const std::string& chain) const {
    const std::string name = chain == "input" ? "iifname" : "oifname";
    output_of(hosts.on(host, {"nft", "add table inet cut; add chain inet cut it { type filter hook " + chain +
                                         " priority 0 ; } ; add rule inet cut it " + name + " != lo drop"}));
  }

  const Hosts hosts;

 private:
  const std::vector<std::string> options_;
  std::string list_;
  std::vector<std::unique_ptr<Process>> agents_;
};

enum Kind { kKilled, kCut, kDeaf, kMute, kPaused, kKinds };
const char* const kNames[] = {"killed", "cut off", "cut off (hears nothing)", "cut off (says nothing)",
                              "paused"};

// So long a silence gives a node up, where it is not to come back.
std::string gives_up_soon() { return lost_after_two_seconds() + ",last_call_timeout=20,read_timeout=3"; }
const std::string kPatient = "last_call_timeout=20,keep_alive_interval=20";

// How long the failover took.
double play(Kind kind, std::mt19937& random, milliseconds pause) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Trio trio(3, {"--nnodes", "2:3", "--max_restarts", "3", "--rdzv_conf",
                kind == kPaused ? kPatient : gives_up_soon()});
  trio.start_all();
  REQUIRE_MESSAGE(trio.trains(10), trio.said());
  std::this_thread::sleep_for(milliseconds(below(1000)));
  const int gone = trio.leader();
  REQUIRE_MESSAGE(gone >= 0, trio.said());
  CAPTURE(gone);
  const double since = wall_seconds();
  const Stopwatch watch;
  if (kind == kKilled) trio.agent(gone).signal(SIGKILL);
  if (kind == kPaused) trio.agent(gone).signal(SIGSTOP);
  if (kind == kCut) trio.hosts.cut(gone);
  if (kind == kDeaf) trio.filter(gone, "input");
  if (kind == kMute) trio.filter(gone, "output");
  const double took = trio.failover_from(gone, since, watch);
  CHECK_MESSAGE(took >= 0, trio.said());
  CHECK_MESSAGE(took <= kFailover, trio.said());

  std::vector<int> left{(gone + 1) % 3, (gone + 2) % 3};
  if (kind == kPaused) {
    // Its workers train, and so do those of the others: none is told to pause.
    CHECK(trio.goes_on());
    if (const auto rest = pause - watch.wall(); rest.count() > 0) std::this_thread::sleep_for(rest);
    trio.agent(gone).signal(SIGCONT);
    left.push_back(gone);
  } else {
    const Ended ended = trio.agent(gone).end();
    CHECK_MESSAGE(ended.exit_code == (kind == kKilled ? 137 : 69), trio.said());
    const std::string lost = Hosts::name(gone) + ", which had the coordinator, is lost: node";
    CHECK_MESSAGE(eventually([&] { return contains(trio.said(), lost); }), trio.said());
  }
  CHECK_MESSAGE(trio.goes_on(), trio.said());
  if (kind == kPaused)
    for (int host = 0; host < 3; ++host)
      CHECK_MESSAGE(trio.events(host).count("pause_workers") == 0, trio.said());
  trio.end_as_calm(left);
  std::printf("%s: another host leads after %.2f s\n", kNames[kind], took);
  return took;
}

// A store of several; by its last word on that.
bool leads(const Process& store) {
  const std::string out = store.out();
  const std::size_t began = out.rfind("is the coordinator now");
  return began != std::string::npos && out.find("is the coordinator no more", began) == std::string::npos;
}

}  // namespace

TEST_CASE("the host of the coordinator is lost: another one takes over, and the model is the same" *
          doctest::test_suite("namespaces")) {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  std::mt19937 random(static_cast<unsigned>(number_from("DTRUN_SEED", 1)));
  play(kKilled, random, {});
  // Its workers go on.
  play(kPaused, random, milliseconds(2500));
}

TEST_CASE("the host of the coordinator is cut off: another one takes over, and the model is the same" *
          doctest::test_suite("long_namespaces")) {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  std::mt19937 random(static_cast<unsigned>(number_from("DTRUN_SEED", 1)));
  std::vector<double> all;
  std::uint64_t rounds = number_from("DTRUN_ROUNDS", 0);
  if (rounds == 0)
    for (const Kind kind : {kCut, kDeaf, kMute}) all.push_back(play(kind, random, {}));
  for (; rounds > 0; --rounds) {
    const auto kind = static_cast<Kind>(random() % kKinds);
    all.push_back(play(kind, random, milliseconds(kind == kPaused && random() % 4 == 0 ? 30000 : 3000)));
  }
  std::ranges::sort(all);
  std::printf("%zu rounds: %.2f s at least, %.2f in the middle, %.2f at most\n", all.size(), all.front(),
              all[all.size() / 2], all.back());
}

TEST_CASE("the host of the coordinator leaves: the next one knows who that was, and that it is back" *
          doctest::test_suite("namespaces")) {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  Trio trio(3, {"--nnodes", "3", "--max_restarts", "3", "--rdzv_conf", "last_call_timeout=20"});
  trio.start_all();
  REQUIRE_MESSAGE(trio.trains(10), trio.said());
  const int gone = trio.leader();
  REQUIRE_MESSAGE(gone >= 0, trio.said());
  trio.agent(gone).signal(SIGTERM);
  CHECK(trio.agent(gone).wait() == 143);
  const std::string name = Hosts::name(gone);
  const std::vector<int> others{(gone + 1) % 3, (gone + 2) % 3};
  for (const int host : others)
    CHECK_MESSAGE(trio.agent(host).wait_for_err("missing: " + name + " (left"), trio.said());
  trio.start(gone);
  for (const int host : others) CHECK_MESSAGE(trio.agent(host).wait_for_err(name + " is back"), trio.said());
  CHECK_MESSAGE(trio.goes_on(), trio.said());
  CHECK_MESSAGE(!contains(trio.said(), "node rank"), trio.said());
  CHECK_MESSAGE(!contains(trio.said(), "(lost"), trio.said());
  trio.end_as_calm({0, 1, 2});
}

TEST_CASE("of two hosts the second takes over only where it is told to" * doctest::test_suite("namespaces")) {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  SUBCASE("failover=always") {
    Trio pair(
        2, {"--nnodes", "1:2", "--max_restarts", "3", "--rdzv_conf", gives_up_soon() + ",failover=always"});
    pair.start_all();
    REQUIRE_MESSAGE(pair.trains(10), pair.said());
    const int gone = pair.leader();
    REQUIRE_MESSAGE(gone >= 0, pair.said());
    const double since = wall_seconds();
    const Stopwatch watch;
    pair.agent(gone).signal(SIGKILL);
    const double took = pair.failover_from(gone, since, watch);
    CHECK_MESSAGE(took >= 0, pair.said());
    CHECK_MESSAGE(pair.agent(1 - gone).wait_for_err("watch: http://127.0.0.1:"), pair.said());
    CHECK_MESSAGE(took <= kFailover, pair.said());
    CHECK_MESSAGE(pair.goes_on(), pair.said());
    pair.end_as_calm({1 - gone});
  }
  SUBCASE("never, which is the default and is said") {
    Trio pair(2, {"--nnodes", "1:2", "--max_restarts", "3", "--rdzv_conf", gives_up_soon()});
    pair.start_all();
    REQUIRE_MESSAGE(pair.trains(10), pair.said());
    pair.agent(0).signal(SIGKILL);
    const Ended ended = pair.agent(1).end();
    CHECK_MESSAGE(ended.exit_code == 69, ended.err);
    CHECK_MESSAGE(contains(ended.err, "10.77.0.2 does not take over"), ended.err);
  }
}

TEST_CASE("of three stores another one takes over, and the job's only node notices nothing") {
  const std::string port = std::to_string(free_port());
  std::string list;
  for (int store = 1; store <= 3; ++store)
    list += (store > 1 ? "," : "") + ("127.0.0." + std::to_string(store));
  const auto start = [&](int store) {
    return std::make_unique<Process>(std::vector<std::string>{
        kDtrun, "store", "--bind", "127.0.0." + std::to_string(store), "--port", port, "--peers", list});
  };
  std::vector<std::unique_ptr<Process>> stores;
  for (int store = 1; store <= 3; ++store) stores.push_back(start(store));
  for (const auto& store : stores) REQUIRE_MESSAGE(store->wait_for_out("listening on"), store->err());
  const Site site;
  Process job(site.command({"--nnodes", "1", "--rdzv_endpoint", list + ":" + port, "--rdzv_id", "stores",
                            "--nproc_per_node", "1", "--lanes", "1"}),
              site.environment({{.point = "updated", .count = kStep, .once = "held", .after = {"on"}}}));
  REQUIRE_MESSAGE(eventually([&] { return std::filesystem::exists(site.mark("held")); }), job.err());
  auto leader = stores.end();
  REQUIRE(eventually([&] {
    leader = std::ranges::find_if(stores, [](const auto& store) { return leads(*store); });
    return leader != stores.end();
  }));
  (*leader)->signal(SIGKILL);
  const bool taken_over = eventually([&] {
    return std::ranges::any_of(stores, [&](const auto& store) {
      return &store != &*leader && contains(store->out(), "taken over as it runs");
    });
  });
  for (const auto& store : stores) {
    const std::string said = store->out() + store->err();
    CHECK_MESSAGE(taken_over, said);
  }
  // The job's agent, which is on the store's host, has not taken its place.
  const auto again = start(static_cast<int>(leader - stores.begin()) + 1);
  CHECK_MESSAGE(again->wait_for_out("listening on"), again->err());
  write_text(site.mark("on"), "");
  const Ended ended = job.end();
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  check_results(site);
  const Ended status = run({kDtrun, "status", "stores", "--rdzv_endpoint", list + ":" + port});
  CHECK_MESSAGE(contains(status.out, "over, exit code 0"), status.out << status.err);
}

}  // namespace dtrun::failover_test
