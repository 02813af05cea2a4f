// Workers die at every moment of their lives, at stop points and not after a time. Each time the job must end
// well, with the bytes and the metrics of a run without a failure; a survivor goes on with what it holds; and
// nothing is left behind.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tests/e2e/training.h"
#include "tests/support/small_images.h"

using namespace dtrun::test;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kSteps = 30, kSaveSteps = 5, kEvalSteps = 10;
constexpr int kJobsAtOnce = 3;
// A step in the middle, away from checkpoints and evaluations.
constexpr int kStep = 8;
// The step at which the survivor waits for the replacement.
constexpr int kHeldAt = 12;

// One stop of tests/e2e/stop_point_worker.cc. Marks are files that the test and its workers share.
struct Stop {
  std::string point;
  int rank = 0;
  int count = 1;
  int signal = 0;
  std::string given = {}, once = {};
  std::vector<std::string> after = {};
};

Stop killed(const std::string& point, int rank, int count = 1) {
  return {.point = point,
          .rank = rank,
          .count = count,
          .signal = SIGKILL,
          .once = "killed" + std::to_string(rank)};
}

// The metrics of training and evaluations, which no failure may change.
struct Curve {
  std::vector<Json> train, eval, end;
  bool operator==(const Curve&) const = default;
};

Curve curve(const fs::path& output) {
  Curve curve;
  std::istringstream lines(read_if_there(output / "metrics.jsonl"));
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text, nullptr, false);
    REQUIRE_MESSAGE(line.is_object(), text);
    if (line["event"] == "train")
      curve.train.push_back({line["step"], line["loss"], line["grad_norm"], line["learning_rate"]});
    else if (line["event"] == "eval")
      curve.eval.push_back({line["step"], line["loss"], line["accuracy"]});
    else if (line["event"] == "end")
      curve.end.push_back({line["event"], line["step"], line["params_sha256"]});
  }
  return curve;
}

const fs::path& data() {
  static const Folder folder;
  static const bool written = [] {
    write_idx(folder.path(), "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 1100, 1);
    write_idx(folder.path(), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 250, 2);
    return true;
  }();
  REQUIRE(written);
  return folder.path();
}

std::vector<std::string> overrides() {
  return {"data.path=" + data().string(), "train.max_steps=" + std::to_string(kSteps),
          "train.save_steps=" + std::to_string(kSaveSteps), "train.eval_steps=" + std::to_string(kEvalSteps)};
}

std::vector<long> numbers_after(const std::string& words, const std::string& text) {
  std::vector<long> numbers;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos;) {
    at += words.size();
    numbers.push_back(std::strtol(text.c_str() + at, nullptr, 10));
  }
  return numbers;
}

// A folder beside the build's programs, so that they can be linked to.
class Site {
 public:
  Site() {
    fs::create_directories(path());
    fs::create_hard_link(kDtrun, path() / "dtrun");
    const char* other = std::getenv("DTRUN_TEST_WORKER");  // built with a sanitizer
    fs::create_hard_link(other != nullptr ? other : DTRUN_BIN_DIR "/../tests/stop_point_worker",
                         path() / "dtrun-worker");
  }
  ~Site() {
    std::error_code ignored;
    fs::remove_all(path(), ignored);
  }
  Site(const Site&) = delete;
  fs::path path() const { return path_; }
  fs::path output() const { return path() / "out"; }
  fs::path mark(const std::string& name) const { return path() / name; }

  std::vector<std::string> environment(const std::vector<Stop>& stops) const {
    std::string text = "DTRUN_TEST_STOP=";
    for (const Stop& stop : stops) {
      text += stop.point + ":rank=" + std::to_string(stop.rank) + ":count=" + std::to_string(stop.count) +
              ":signal=" + std::to_string(stop.signal);
      if (!stop.given.empty()) text += ":given=" + mark(stop.given).string();
      if (!stop.once.empty()) text += ":once=" + mark(stop.once).string();
      for (const std::string& name : stop.after)
        text += (&name == &stop.after.front() ? ":after=" : ",") + mark(name).string();
      text += ";";
    }
    return {text};
  }
  std::vector<std::string> command(const std::vector<std::string>& options,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> argv = training(options, output(), overrides());
    argv.insert(argv.end(), more.begin(), more.end());
    argv.front() = (path() / "dtrun").string();
    return argv;
  }

 private:
  static int next() {
    static int count = 0;
    return ++count;
  }
  const fs::path path_ = fs::path(DTRUN_BIN_DIR) / "../tests" /
                         ("site-" + std::to_string(getpid()) + "-" + std::to_string(next()));
};

struct Calm {
  std::string model;
  Curve curve;
};

// One worker without a failure: the result that every other run must equal.
const Calm& calm() {
  static const Calm result = [] {
    const Site site;
    const Ended ended = run(site.command(standalone(1)));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    const Curve curve = ::curve(site.output());
    REQUIRE(curve.train.size() == kSteps);
    REQUIRE(curve.eval.size() == kSteps / kEvalSteps);
    REQUIRE(curve.end.size() == 1);
    return Calm{.model = model(site.output()), .curve = curve};
  }();
  return result;
}

// Checks that the job's results equal those of the calm run, and that no other files are left.
void check_results(const Site& site) {
  CHECK(model(site.output()) == calm().model);
  const Curve curve = ::curve(site.output());
  CHECK(curve.train == calm().curve.train);
  CHECK(curve.eval == calm().curve.eval);
  CHECK(curve.end == calm().curve.end);
  std::vector<std::string> checkpoints;
  for (const auto& entry : fs::directory_iterator(site.output() / "checkpoints"))
    checkpoints.push_back(entry.path().filename().string());
  CHECK(checkpoints.size() <= 3);
  for (const std::string& name : checkpoints) CHECK_MESSAGE(name.starts_with("step-"), name);
  CHECK(processes_with(site.path().string()).empty());
}

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
void take_in(Case& one, int survivor, const std::vector<int>& lost) {
  one.stops.push_back(
      {.point = "updated", .rank = survivor, .count = kHeldAt, .once = "held", .after = {"ordered"}});
  one.stops.push_back({.point = "pause_ordered", .rank = survivor, .once = "ordered"});
  for (const int rank : lost) {
    one.stops.push_back({.point = "ready",
                         .rank = rank,
                         .given = "killed" + std::to_string(rank),
                         .once = "back" + std::to_string(rank),
                         .after = {"held"}});
  }
  one.starts->third = true;
}

// A held survivor carries the order out with its next step. With several of them it may be a step more or
// less: one that was sent the last step has done one less itself, and is held one later; and who is killed as
// it leaves may be the only one to have done the step, since its peers lose what they have not read yet.
void check_taken_in(long start, int workers) {
  const int spread = workers > 2 ? 1 : 0;
  CHECK(start >= kHeldAt + 1 - spread);
  CHECK(start <= kHeldAt + 1 + spread);
}

std::vector<std::string> without_checkpoints(int in_memory_checkpoint_steps) {
  return {"train.save_strategy=no",
          "recovery.in_memory_checkpoint_steps=" + std::to_string(in_memory_checkpoint_steps)};
}

class Play {
 public:
  explicit Play(Case one) : case_(std::move(one)) {
    std::vector<std::string> options = standalone(case_.workers);
    options.insert(options.end(), {"--max_restarts", "10"});
    std::vector<std::string> more;
    if (case_.in_memory_checkpoint_steps > 0) more = without_checkpoints(case_.in_memory_checkpoint_steps);
    agent_ = std::make_unique<Process>(site_.command(options, more), site_.environment(case_.stops));
  }

  void check() {
    CAPTURE(case_.name);
    const Ended ended = agent_->end();
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK_FALSE(contains(ended.err, "ThreadSanitizer"));  // reported by a worker that was killed afterwards
    if (ended.exit_code != 0) return;
    for (const Stop& stop : case_.stops) {
      CAPTURE(stop.once);
      CHECK(fs::exists(site_.mark(stop.once)));
    }
    check_results(site_);
    if (case_.starts) check_starts(ended.err);
  }

 private:
  void check_starts(const std::string& err) const {
    const std::vector<long> starts = numbers_after("] going on at step ", err);
    CAPTURE(starts.size());
    CHECK(starts.size() >= 1);
    if (starts.empty()) return;
    CHECK(starts.front() >= case_.starts->from);
    CHECK(starts.front() <= case_.starts->to);
    CHECK(std::is_sorted(starts.begin(), starts.end()));
    if (case_.starts->third) {
      CHECK(starts.size() >= 2);
      if (starts.size() < 2) return;
      check_taken_in(starts[1], case_.workers);
    }
    const std::vector<long> resumed = numbers_after("] resumed from step ", err);
    if (case_.in_memory_checkpoint_steps == 0) {
      CHECK(resumed.empty());
      CHECK_FALSE(contains(err, "done again"));
    } else {
      CHECK(contains(err, ", from the host's memory"));
      // A replacement may come when the others have just ended the job.
      CHECK(std::ranges::count(resumed, kSteps) == std::ssize(resumed));
    }
    CHECK_FALSE(contains(err, "begins again"));
  }

  const Case case_;
  const Site site_;
  std::unique_ptr<Process> agent_;
};

// Several at a time; most of a job's time is waiting.
void play(std::deque<Case> cases) {
  calm();
  std::deque<Play> plays;
  while (!cases.empty() || !plays.empty()) {
    while (!cases.empty() && plays.size() < kJobsAtOnce) {
      plays.emplace_back(std::move(cases.front()));
      cases.pop_front();
    }
    plays.front().check();
    plays.pop_front();
  }
}

// A moment in a worker's life, and how many steps its survivors have done then.
struct Moment {
  const char* point;
  int count;
  std::optional<Starts> starts;
};

std::string name_of(const Stop& stop) {
  return "rank " + std::to_string(stop.rank) + " at " + stop.point + ", " + std::to_string(stop.count);
}

}  // namespace

TEST_CASE("a worker killed before anybody has trained") {
  std::deque<Case> cases;
  for (const char* point : {"hello", "loading", "ready", "meeting", "connecting", "choosing_start"}) {
    for (const int rank : {0, 1}) {
      const Stop stop = killed(point, rank);
      cases.push_back({.name = name_of(stop), .stops = {stop}, .starts = {}});
    }
  }
  play(std::move(cases));
}

// Each rank computes 4 microbatches of a step and 8 of an evaluation.
TEST_CASE("a worker killed in training: the survivor goes on with what it holds, and takes in another") {
  const Starts before{kStep - 1, kStep - 1}, around{kStep - 1, kStep};
  std::deque<Case> cases;
  for (const Moment& moment :
       {Moment{"microbatch", 1, Starts{0, 0}}, Moment{"microbatch", 4 * (kStep - 1) + 2, before},
        Moment{"bucket_sent", 2 * (kStep - 1) + 1, before}, Moment{"exchanged", kStep, around},
        Moment{"updated", kStep, around}, Moment{"evaluating", 3, Starts{9, 10}}}) {
    for (const int rank : {0, 1}) {
      const Stop stop = killed(moment.point, rank, moment.count);
      Case one{.name = name_of(stop), .stops = {stop}, .starts = moment.starts};
      take_in(one, 1 - rank, {rank});
      cases.push_back(one);
    }
  }
  // Only rank 0 writes.
  for (const Moment& moment : {Moment{"saving", 1, Starts{4, 5}}, Moment{"writing", 1, Starts{4, kSteps}}}) {
    const Stop stop = killed(moment.point, 0, moment.count);
    cases.push_back({.name = name_of(stop), .stops = {stop}, .starts = moment.starts});
  }
  play(std::move(cases));
}

TEST_CASE("a worker killed in the end: the survivor ends the job") {
  const Starts last{kSteps - 1, kSteps};
  std::deque<Case> cases;
  for (const Moment& moment : {Moment{"evaluating", 2 * 8 + 3, last}, Moment{"finishing", 1, last},
                               Moment{"model_written", 1, last}, Moment{"last_barrier", 1, last},
                               // The other one may have ended, or not.
                               Moment{"leaving_last", 1, {}}}) {
    for (const int rank : {0, 1}) {
      if (rank == 1 && moment.point == std::string("model_written")) continue;
      const Stop stop = killed(moment.point, rank, moment.count);
      cases.push_back({.name = name_of(stop), .stops = {stop}, .starts = moment.starts});
    }
  }
  play(std::move(cases));
}

// ---- Several workers, and their help for each other. ----

namespace {

// No worker dies before all have come there.
std::vector<Stop> killed_together(const std::string& point, const std::vector<int>& ranks, int count) {
  std::vector<Stop> stops;
  for (const int one : ranks) {
    stops.push_back(killed(point, one, count));
    for (const int rank : ranks) stops.back().after.push_back("killed" + std::to_string(rank));
  }
  return stops;
}

// Rank `lost` of three is replaced, and while the replacement is being taken in, another one dies.
Case relieved(int lost, Stop second) {
  Case one{.name = name_of(second), .workers = 3, .stops = {killed("exchanged", lost, kStep)}};
  one.starts = Starts{kStep - 1, kStep};
  take_in(one, (lost + 1) % 3, {lost});
  second.once = "second";
  second.given = "ordered";
  one.stops.push_back(second);
  return one;
}

}  // namespace

TEST_CASE("two of three workers killed at once: the third goes on with what it holds") {
  const Starts around{kStep - 1, kStep};
  std::deque<Case> cases;
  for (const Moment& moment : {Moment{"exchanged", kStep, around}, Moment{"updated", kStep, around},
                               Moment{"bucket_sent", 2 * (kStep - 1) + 1, Starts{kStep - 1, kStep - 1}}}) {
    for (int third = 0; third < 3; ++third) {
      const std::vector<int> lost{(third + 1) % 3, (third + 2) % 3};
      Case one{.name = "all but rank " + std::to_string(third) + " at " + moment.point,
               .workers = 3,
               .stops = killed_together(moment.point, lost, moment.count),
               .starts = moment.starts};
      take_in(one, third, lost);
      cases.push_back(one);
    }
  }
  for (const char* point : {"finishing", "last_barrier"}) {
    cases.push_back({.name = std::string("ranks 0 and 1 at ") + point,
                     .workers = 3,
                     .stops = killed_together(point, {0, 1}, 1),
                     .starts = Starts{kSteps - 1, kSteps}});
  }
  play(std::move(cases));
}

TEST_CASE("all workers killed at once: they begin at the newest checkpoint") {
  std::deque<Case> cases;
  for (const int workers : {2, 3}) {
    for (const auto& [point, count] : {std::pair{"microbatch", 1},
                                       {"updated", 3},
                                       {"updated", kStep},
                                       {"updated", 21},
                                       {"finishing", 1},
                                       {"leaving_last", 1}}) {
      std::vector<int> all;
      for (int rank = 0; rank < workers; ++rank) all.push_back(rank);
      cases.push_back({.name = std::to_string(workers) + " at " + point + ", " + std::to_string(count),
                       .workers = workers,
                       .stops = killed_together(point, all, count)});
    }
  }
  play(std::move(cases));
}

TEST_CASE("all workers killed at once: they go on from the copies in the host's memory, and read no disk") {
  struct Death {
    const char* point;
    int count, every;
    Starts starts;
  };
  std::deque<Case> cases;
  for (const int workers : {1, 3}) {
    for (const Death& death :
         {Death{"updated", kStep, 1, {kStep - 1, kStep - 1}},
          Death{"exchanged", kStep, 1, {kStep - 2, kStep - 1}},
          Death{"in_memory_checkpointing", kStep, 1, {kStep - 1, kStep - 1}},
          Death{"host_copied", kStep, 1, {kStep, kStep}}, Death{"updated", kStep, 5, {5, 5}},
          Death{"in_memory_checkpointing", 3, 5, {10, 10}}, Death{"evaluating", 2, 1, {9, 10}},
          Death{"finishing", 1, 1, {kSteps - 1, kSteps}}}) {
      std::vector<int> all;
      for (int rank = 0; rank < workers; ++rank) all.push_back(rank);
      cases.push_back({.name = std::to_string(workers) + " at " + death.point + ", " +
                               std::to_string(death.count) + ", every " + std::to_string(death.every),
                       .workers = workers,
                       .stops = killed_together(death.point, all, death.count),
                       .starts = death.starts,
                       .in_memory_checkpoint_steps = death.every});
    }
  }
  // One has its copy, and the other one that of the step before; the first to be back may go on alone.
  Case uneven{.name = "2 at in_memory_checkpointing and host_copied",
              .stops = {killed("host_copied", 0, kStep), killed("in_memory_checkpointing", 1, kStep)},
              .starts = Starts{kStep - 1, kStep},
              .in_memory_checkpoint_steps = 1};
  for (Stop& stop : uneven.stops) stop.after = {"killed0", "killed1"};
  cases.push_back(uneven);
  std::swap(uneven.stops[0].point, uneven.stops[1].point);
  cases.push_back(uneven);
  play(std::move(cases));
}

TEST_CASE("a worker killed while a replacement is taken in: nothing is lost as long as one is left") {
  std::deque<Case> cases;
  for (const int lost : {0, 1, 2}) {
    const int source = lost == 0 ? 1 : 0, other = lost == 2 ? 1 : 2;
    for (const int survivor : {source, other}) {
      cases.push_back(relieved(lost, killed("leaving", survivor)));
      cases.push_back(relieved(lost, killed("choosing_start", survivor)));
    }
    cases.push_back(relieved(lost, killed("sending_state", source)));
    cases.push_back(relieved(lost, killed("receiving_state", lost)));
  }
  play(std::move(cases));
}

TEST_CASE("the only survivor killed while it sends its state: the newest checkpoint is left") {
  std::deque<Case> cases;
  for (const int lost : {0, 1}) {
    for (const char* point : {"leaving", "sending_state"}) {
      Case one{
          .name = "rank " + std::to_string(1 - lost) + " at " + point,
          .stops =
              {killed("exchanged", lost, kStep),
               {.point = point, .rank = 1 - lost, .signal = SIGKILL, .given = "ordered", .once = "second"}},
          .starts = Starts{}};
      take_in(one, 1 - lost, {lost});
      one.starts.reset();
      cases.push_back(one);
    }
  }
  play(std::move(cases));
}

TEST_CASE("replacements killed while they load or meet: the survivor goes on meanwhile") {
  std::deque<Case> cases;
  for (const int lost : {0, 1}) {
    for (const char* point : {"hello", "loading", "ready", "meeting", "choosing_start"}) {
      const std::string first = "killed" + std::to_string(lost);
      Case one{.name = "the replacement of rank " + std::to_string(lost) + " at " + point,
               .stops = {killed("exchanged", lost, kStep)},
               .starts = Starts{kStep - 1, kStep}};
      take_in(one, 1 - lost, {lost});
      one.stops.push_back(
          {.point = point, .rank = lost, .signal = SIGKILL, .given = first, .once = "second"});
      cases.push_back(one);
    }
  }
  play(std::move(cases));
}

// Two nodes on this host, with a `dtrun store`: one with rank 0, one with two workers. Rank 1 dies and is
// replaced. Its node's agent is killed when the other worker of that node has left its generation for the
// replacement's sake, and before the next one begins.
TEST_CASE("an agent killed between the order to pause and the next generation: the other node goes on") {
  calm();
  const Site site;
  const std::string port = std::to_string(free_port());
  Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", port});
  REQUIRE(eventually([&] { return is_listening(std::stoi(port)); }));
  Case one{.name = "agent", .stops = {killed("exchanged", 1, kStep)}, .starts = Starts{}};
  take_in(one, 0, {1});
  one.stops.push_back({.point = "ready", .rank = 2, .count = 3, .once = "left", .after = {"never"}});
  const auto node = [&](const std::string& rank, const std::string& workers) {
    return std::make_unique<Process>(
        site.command({"--nnodes", "1:2", "--max_restarts", "1", "--node_rank", rank, "--rdzv_endpoint",
                      "127.0.0.1:" + port, "--rdzv_id", "points", "--rdzv_conf", "last_call_timeout=30",
                      "--nproc_per_node", workers, "--lanes", "1"}),
        site.environment(one.stops));
  };
  const auto first = node("0", "1"), second = node("1", "2");
  REQUIRE_MESSAGE(eventually([&] { return fs::exists(site.mark("left")); }), first->err() << second->err());
  second->signal(SIGKILL);
  const Ended a = first->end();
  CAPTURE(a.err);
  CAPTURE(second->end().err);
  CHECK(a.exit_code == 0);
  const std::vector<long> starts = numbers_after("] going on at step ", a.err);
  REQUIRE(!starts.empty());
  check_taken_in(starts.back(), 3);
  CHECK_FALSE(contains(a.err, "resumed from step"));
  CHECK_FALSE(contains(a.err, "done again"));
  check_results(site);
}

namespace {

// The open files of a process.
std::vector<std::string> open_files(pid_t pid) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored))
    files.push_back(fs::read_symlink(entry.path(), ignored).string());
  return files;
}

long host_copies_open(pid_t pid) {
  const std::vector<std::string> files = open_files(pid);
  return std::ranges::count_if(
      files, [](const std::string& file) { return contains(file, "dtrun-in-memory-checkpoint"); });
}

}  // namespace

// Two nodes on this host, with a `dtrun store`: one with rank 0, one with two workers.
TEST_CASE("all workers of all nodes killed at once: they go on from what their hosts hold") {
  calm();
  struct Death {
    const char* point;
    int every;
    long start;
  };
  for (const Death& death : {Death{"updated", 1, kStep - 1}, Death{"in_memory_checkpointing", 1, kStep - 1},
                             Death{"updated", 5, 5}}) {
    CAPTURE(death.point);
    const Site site;
    const std::string port = std::to_string(free_port());
    Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", port});
    REQUIRE(eventually([&] { return is_listening(std::stoi(port)); }));
    const auto stops = killed_together(death.point, {0, 1, 2}, kStep);
    const auto node = [&](const std::string& rank, const std::string& workers) {
      return std::make_unique<Process>(
          site.command(
              {"--nnodes", "2", "--max_restarts", "5", "--node_rank", rank, "--rdzv_endpoint",
               "127.0.0.1:" + port, "--rdzv_id", "copies", "--nproc_per_node", workers, "--lanes", "1"},
              without_checkpoints(death.every)),
          site.environment(stops));
    };
    const auto first = node("0", "1"), second = node("1", "2");
    const Ended a = first->end(), b = second->end();
    CAPTURE(a.err);
    CAPTURE(b.err);
    CHECK(a.exit_code == 0);
    CHECK(b.exit_code == 0);
    const std::vector<long> starts = numbers_after("] going on at step ", a.err);
    REQUIRE(!starts.empty());
    CHECK(starts.front() == death.start);
    CHECK(contains(a.err, ", from the host's memory"));
    check_results(site);
  }
}

TEST_CASE("an agent takes its copies with it: the next one begins at the newest checkpoint") {
  calm();
  const Site site;
  const std::vector<std::string> copies{"recovery.in_memory_checkpoint_steps=1"};
  Stop stop = killed("updated", 0, kStep);
  stop.signal = 0;
  stop.after = {"never"};
  Process agent(site.command(standalone(1), copies), site.environment({stop}));
  REQUIRE(eventually([&] { return fs::exists(site.mark("killed0")) && has_checkpoint(site.output()); }));
  agent.signal(SIGKILL);
  agent.wait();
  const Ended resumed = run(site.command(standalone(2), copies));
  CAPTURE(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(contains(resumed.err, "] resumed from step 5 of "));
  CHECK_FALSE(contains(resumed.err, "from the host's memory"));
  check_results(site);
}

TEST_CASE("nobody but the agent keeps the memory of copies open, and other programs are given none") {
  calm();
  const Site site;
  Stop stop = killed("updated", 1, kStep);
  stop.signal = 0;
  stop.after = {"on"};
  Process job(site.command(standalone(2), without_checkpoints(1)), site.environment({stop}));
  REQUIRE(eventually([&] { return fs::exists(site.mark("killed1")); }));
  CHECK(host_copies_open(job.pid()) == 2);
  const std::vector<pid_t> workers = children_of(job.pid(), "dtrun-worker"),
                           watchdogs = children_of(job.pid(), "watchdog");
  REQUIRE(workers.size() == 2);
  REQUIRE(watchdogs.size() == 1);
  for (const pid_t worker : workers) {
    CHECK(host_copies_open(worker) == 0);
    CHECK(contains(read_if_there("/proc/" + std::to_string(worker) + "/maps"), "dtrun-in-memory-checkpoint"));
  }
  CHECK(host_copies_open(watchdogs[0]) == 0);
  write_text(site.mark("on"), "");
  const Ended ended = job.end();
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  const Ended program = run({kDtrun, "--standalone", "/bin/ls", "-l", "/proc/self/fd"});
  CHECK(program.exit_code == 0);
  CHECK(contains(program.out, "->"));
  CHECK_FALSE(contains(program.out, "memfd"));
}

TEST_CASE("copies in the host's memory and a recovery from checkpoints alone are refused together") {
  const Site site;
  std::vector<std::string> options = standalone(1);
  options.insert(options.end(), {"--recovery", "checkpoint"});
  const Ended refused = run(site.command(options, without_checkpoints(1)));
  CHECK(refused.exit_code == 78);
  CHECK_MESSAGE(contains(refused.err, "/recovery/in_memory_checkpoint_steps"), refused.err);
}

TEST_CASE("a job that fails for good saves what its survivors hold, and is resumed there") {
  calm();
  for (const int lost : {0, 1, 2}) {
    CAPTURE(lost);
    const Site site;
    std::vector<std::string> options = standalone(3);
    options.insert(options.end(), {"--max_restarts", "0"});
    const Ended failed = run(site.command(options), site.environment({killed("updated", lost, kStep)}));
    CAPTURE(failed.err);
    CHECK(failed.exit_code == 128 + SIGKILL);
    CHECK_FALSE(contains(failed.err, "was not saved"));
    const Ended resumed = run(site.command(standalone(2)));
    CAPTURE(resumed.err);
    CHECK(resumed.exit_code == 0);
    const std::vector<long> starts = numbers_after("] resumed from step ", resumed.err);
    REQUIRE(starts.size() == 1);
    CHECK(starts.front() >= kStep - 1);
    CHECK(starts.front() <= kStep);
    check_results(site);
  }
}
