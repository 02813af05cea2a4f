// Three machines of which each may be the coordinator: network namespaces, real processes. The host that
// leads is killed, cut off (both ways, or one), or stands still, at random moments; another one takes over,
// nobody's workers are paused by that, and the model has the bytes of an undisturbed run. DTRUN_ROUNDS=N
// plays N rounds instead of one of each kind, with pauses of 30 s; DTRUN_SEED begins them elsewhere.
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
#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::failover_test {

using namespace dtrun::test;

namespace {

using std::chrono::milliseconds;

constexpr double kFailover = 1.5;  // seconds, on a machine with idle processors

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Runnable processes per processor; at least 1.
double load_factor() {
  double load = 1;
  std::ifstream("/proc/loadavg") >> load;
  return std::max(1.0, load / std::max(1u, std::thread::hardware_concurrency()));
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
  Trio(int count, std::vector<std::string> options, int steps)
      : hosts(count), options_(std::move(options)), steps_(steps) {
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
        hosts.on(host, training(argv, hosts.directory() / "out",
                                {"train.max_steps=" + std::to_string(steps_), "train.save_steps=1000000"})));
  }
  void start_all() {
    for (int host = 0; host < count(); ++host) start(host);
  }
  int count() const { return static_cast<int>(agents_.size()); }
  Process& agent(int host) { return *agents_[static_cast<std::size_t>(host)]; }

  Events events(int host) const {
    return Events(read_if_there(hosts.seen_from_here(host, "log/trio/events.jsonl")));
  }
  long lines() const {
    long most = 0;
    for (int host = 0; host < count(); ++host)
      most = std::max(most, metrics_lines(hosts.seen_from_here(host, "out")));
    return most;
  }
  bool trains(long lines) const {
    return eventually([&] { return this->lines() >= lines; });
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
  // Seconds until all others had joined again, of whom one leads; -1: not within a minute.
  double failover_from(int gone, double since) const {
    double last = 0;
    const bool done = eventually(
        [&] {
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
        },
        milliseconds(60000));
    return done ? last - since : -1;
  }
  std::string any_model() const {
    for (int host = 0; host < count(); ++host)
      if (std::filesystem::exists(hosts.seen_from_here(host, "out/model.safetensors")))
        return model(hosts.seen_from_here(host, "out"));
    return "";
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
  const int steps_;
  std::string list_;
  std::vector<std::unique_ptr<Process>> agents_;
};

enum Kind { kKilled, kCut, kDeaf, kMute, kPaused, kKinds };
const char* const kNames[] = {"killed", "cut off", "cut off (hears nothing)", "cut off (says nothing)",
                              "paused"};

struct Round {
  double took = 0, load = 1;
};

// Two seconds of silence give a node up, where it is not to come back.
const std::string kSoon =
    "last_call_timeout=20,keep_alive_interval=1,keep_alive_max_attempt=2,read_timeout=3";
const std::string kPatient = "last_call_timeout=20,keep_alive_interval=20";

Round play(Kind kind, std::mt19937& random, milliseconds pause, int steps) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Trio trio(3, {"--nnodes", "2:3", "--max_restarts", "3", "--rdzv_conf", kind == kPaused ? kPatient : kSoon},
            steps);
  trio.start_all();
  REQUIRE_MESSAGE(trio.trains(10), trio.said());
  std::this_thread::sleep_for(milliseconds(below(1000)));
  const int gone = trio.leader();
  REQUIRE_MESSAGE(gone >= 0, trio.said());
  CAPTURE(gone);
  Round round{.load = load_factor()};
  const long lines = trio.lines();
  const double since = wall_seconds();
  if (kind == kKilled) trio.agent(gone).signal(SIGKILL);
  if (kind == kPaused) trio.agent(gone).signal(SIGSTOP);
  if (kind == kCut) trio.hosts.cut(gone);
  if (kind == kDeaf) trio.filter(gone, "input");
  if (kind == kMute) trio.filter(gone, "output");
  round.took = trio.failover_from(gone, since);
  CHECK_MESSAGE(round.took >= 0, trio.said());
  round.load = std::max(round.load, load_factor());
  CHECK_MESSAGE(round.took <= kFailover * round.load, trio.said());

  int codes[3] = {0, 0, 0};
  if (kind == kPaused) {
    // Its workers train, and so do those of the others: none is told to pause.
    CHECK(eventually([&] { return trio.lines() > lines + 20; }));
    std::this_thread::sleep_until(
        std::chrono::system_clock::time_point(std::chrono::duration_cast<std::chrono::system_clock::duration>(
            std::chrono::duration<double>(since) + pause)));
    trio.agent(gone).signal(SIGCONT);
  }
  if (kind == kKilled) codes[gone] = 137;
  if (kind == kCut || kind == kDeaf || kind == kMute) codes[gone] = 69;
  for (int host = 0; host < 3; ++host) {
    const Ended ended = trio.agent(host).end();
    CAPTURE(host);
    CHECK_MESSAGE(ended.exit_code == codes[host], trio.said());
  }
  if (kind != kPaused)
    CHECK_MESSAGE(contains(trio.said(), Hosts::name(gone) + ", which had the coordinator, is lost: node"),
                  trio.said());
  if (kind == kPaused)
    for (int host = 0; host < 3; ++host)
      CHECK_MESSAGE(trio.events(host).count("pause_workers") == 0, trio.said());
  CHECK_MESSAGE(trio.any_model() == quiet_model(steps), trio.said());
  std::printf("%s: another host leads after %.2f s (load %.1f for each processor)\n", kNames[kind],
              round.took, round.load);
  return round;
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
  const std::uint64_t rounds = number_from("DTRUN_ROUNDS", 0);
  std::vector<Round> all;
  if (rounds == 0) {
    for (const Kind kind : {kKilled, kCut}) all.push_back(play(kind, random, {}, 400));
    // Its workers go on, so there are steps for as long as it takes.
    all.push_back(play(kPaused, random, milliseconds(2500), 1000));
    all.push_back(play(random() % 2 == 0 ? kDeaf : kMute, random, {}, 400));
  }
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const auto kind = static_cast<Kind>(random() % kKinds);
    const bool long_pause = kind == kPaused && random() % 4 == 0;
    all.push_back(play(kind, random, milliseconds(long_pause ? 30000 : 3000), long_pause ? 2500 : 400));
  }
  std::ranges::sort(all, {}, &Round::took);
  std::printf("%zu rounds: %.2f s at least, %.2f in the middle, %.2f at most\n", all.size(), all.front().took,
              all[all.size() / 2].took, all.back().took);
}

TEST_CASE("the host of the coordinator leaves: the next one knows who that was, and that it is back" *
          doctest::test_suite("namespaces")) {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  Trio trio(3, {"--nnodes", "3", "--max_restarts", "3", "--rdzv_conf", "last_call_timeout=20"}, 400);
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
  for (int host = 0; host < 3; ++host) CHECK_MESSAGE(trio.agent(host).wait() == 0, trio.said());
  CHECK_MESSAGE(!contains(trio.said(), "node rank"), trio.said());
  CHECK_MESSAGE(!contains(trio.said(), "(lost"), trio.said());
  CHECK(trio.any_model() == quiet_model(400));
}

TEST_CASE("of two hosts the second takes over only where it is told to" * doctest::test_suite("namespaces")) {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  SUBCASE("failover=always") {
    Trio pair(2, {"--nnodes", "1:2", "--max_restarts", "3", "--rdzv_conf", kSoon + ",failover=always"}, 400);
    pair.start_all();
    REQUIRE_MESSAGE(pair.trains(10), pair.said());
    const int gone = pair.leader();
    REQUIRE_MESSAGE(gone >= 0, pair.said());
    const double since = wall_seconds();
    pair.agent(gone).signal(SIGKILL);
    const double took = pair.failover_from(gone, since);
    CHECK_MESSAGE(took >= 0, pair.said());
    CHECK_MESSAGE(pair.agent(1 - gone).wait_for_err("watch: http://127.0.0.1:"), pair.said());
    CHECK_MESSAGE(took <= kFailover * load_factor(), pair.said());
    CHECK_MESSAGE(pair.agent(1 - gone).wait() == 0, pair.said());
    CHECK(pair.any_model() == quiet_model(400));
  }
  SUBCASE("never, which is the default and is said") {
    Trio pair(2, {"--nnodes", "1:2", "--max_restarts", "3", "--rdzv_conf", kSoon}, 4000);
    pair.start_all();
    REQUIRE_MESSAGE(pair.trains(10), pair.said());
    pair.agent(0).signal(SIGKILL);
    const Ended ended = pair.agent(1).end();
    CHECK_MESSAGE(ended.exit_code == 69, ended.err);
    CHECK_MESSAGE(contains(ended.err, "10.77.0.2 does not take over"), ended.err);
  }
}

TEST_CASE("of three stores another one takes over, and the job's only node notices nothing") {
  std::string port, list;
  for (int store = 1; store <= 3; ++store)
    list += (store > 1 ? "," : "") + ("127.0.0." + std::to_string(store));
  const auto start = [&](int store) {
    return std::make_unique<Process>(std::vector<std::string>{
        kDtrun, "store", "--bind", "127.0.0." + std::to_string(store), "--port", port, "--peers", list});
  };
  std::vector<std::unique_ptr<Process>> stores;
  const auto all_listen = [&] {
    return std::ranges::all_of(stores, [](const auto& store) { return store->wait_for_out("listening on"); });
  };
  // Another test may have taken the port of one of the addresses meanwhile.
  for (int attempt = 0; attempt < 3 && (stores.empty() || !all_listen()); ++attempt) {
    stores.clear();
    port = std::to_string(free_port());
    for (int store = 1; store <= 3; ++store) stores.push_back(start(store));
  }
  REQUIRE(all_listen());
  Folder directory;
  Process job(training({"--nnodes", "1", "--rdzv_endpoint", list + ":" + port, "--rdzv_id", "stores",
                        "--nproc_per_node", "1", "--lanes", "1"},
                       directory / "out", {"train.max_steps=400", "train.save_steps=1000000"}));
  REQUIRE_MESSAGE(eventually([&] { return metrics_lines(directory / "out") > 10; }), job.err());
  auto leader = stores.end();
  REQUIRE(eventually([&] {
    leader = std::ranges::find_if(stores, [](const auto& store) { return leads(*store); });
    return leader != stores.end();
  }));
  // The worker waits, as the job would else be over on a fast machine before anyone took over.
  const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker");
  REQUIRE(workers.size() == 1);
  kill(workers[0], SIGSTOP);
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
  kill(workers[0], SIGCONT);
  // The job's agent, which is on the store's host, has not taken its place.
  const auto again = start(static_cast<int>(leader - stores.begin()) + 1);
  CHECK_MESSAGE(again->wait_for_out("listening on"), again->err());
  const Ended ended = job.end();
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(model(directory / "out") == quiet_model(400));
  const Ended status = run({kDtrun, "status", "stores", "--rdzv_endpoint", list + ":" + port});
  CHECK_MESSAGE(contains(status.out, "over, exit code 0"), status.out << status.err);
}

}  // namespace dtrun::failover_test
