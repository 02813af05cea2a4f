#include "tests/e2e/stop_points.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace dtrun::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kJobsAtOnce = 3;

// The metrics of training and evaluations, which no failure may change.
struct Curve {
  std::vector<Json> train, eval, end;
  bool operator==(const Curve&) const = default;
};

Curve curve_of(const fs::path& output) {
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

// So large batches that the job goes through its data more than once; and the last steps' rate is another
// one.
std::vector<std::string> overrides() {
  return {"train.global_batch_size=128",
          "train.micro_batch_size=16",
          "train.lr_scheduler_type=cosine",
          "train.max_steps=" + std::to_string(kSteps),
          "train.save_steps=" + std::to_string(kSaveSteps),
          "train.eval_steps=" + std::to_string(kEvalSteps)};
}

std::filesystem::path worker() {
  const char* other = std::getenv("DTRUN_TEST_WORKER");  // built with a sanitizer
  return other != nullptr ? other : DTRUN_BIN_DIR "/../tests/stop_point_worker";
}

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
    const Curve curve = curve_of(site.output());
    REQUIRE(curve.train.size() == kSteps);
    REQUIRE(curve.eval.size() == kSteps / kEvalSteps);
    REQUIRE(curve.end.size() == 1);
    return Calm{.model = model(site.output()), .curve = curve};
  }();
  return result;
}

}  // namespace

Stop killed(const std::string& point, int rank, int count) {
  return {.point = point,
          .rank = rank,
          .count = count,
          .signal = SIGKILL,
          .once = "killed" + std::to_string(rank)};
}

std::vector<Stop> killed_together(const std::string& point, const std::vector<int>& ranks, int count) {
  std::vector<Stop> stops;
  for (const int one : ranks) {
    stops.push_back(killed(point, one, count));
    for (const int rank : ranks) stops.back().after.push_back("killed" + std::to_string(rank));
  }
  return stops;
}

Site::Site() : programs_(worker()) {}

std::string variable_of(const std::vector<Stop>& stops, const fs::path& marks) {
  std::string text = "DTRUN_TEST_STOP=";
  for (const Stop& stop : stops) {
    text += stop.point + ":rank=" + std::to_string(stop.rank) + ":count=" + std::to_string(stop.count) +
            ":signal=" + std::to_string(stop.signal);
    if (!stop.given.empty()) text += ":given=" + (marks / stop.given).string();
    if (!stop.once.empty()) text += ":once=" + (marks / stop.once).string();
    for (const std::string& name : stop.after)
      text += (&name == &stop.after.front() ? ":after=" : ",") + (marks / name).string();
    text += ";";
  }
  return text;
}

std::vector<std::string> Site::command(const std::vector<std::string>& options,
                                       const std::vector<std::string>& more) const {
  std::vector<std::string> argv = training(options, output(), joined(overrides(), more));
  argv.front() = programs_.dtrun();
  return argv;
}

void make_calm_run() { calm(); }

void check_results(const Site& site) {
  CHECK(model(site.output()) == calm().model);
  const Curve curve = curve_of(site.output());
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

std::vector<long> numbers_after(const std::string& words, const std::string& text) {
  std::vector<long> numbers;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos;) {
    at += words.size();
    numbers.push_back(std::strtol(text.c_str() + at, nullptr, 10));
  }
  return numbers;
}

namespace {

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

// DTRUN_TEST_PART=5 plays each fifth of this program's cases.
bool is_played() {
  static const char* const part = std::getenv("DTRUN_TEST_PART");
  static int cases = 0;
  return part == nullptr || cases++ % std::max(1, std::atoi(part)) == 0;
}

}  // namespace

void play(std::deque<Case> cases) {
  std::erase_if(cases, [](const Case&) { return !is_played(); });
  make_calm_run();
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

}  // namespace dtrun::test
