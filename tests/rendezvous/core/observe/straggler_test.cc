// The slow rank and its cause: times on both sides of each limit, and accounts that cannot be.
#include "rendezvous/core/observe/straggler.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

namespace dtrun::rendezvous::straggler_test {
namespace {

// Seconds per step of one rank.
struct Part {
  double math = 0.018, data = 0.001, other = 0.001;
  double microbatches = 4;
};
using Parts = std::vector<Part>;

// Ranks whose own time is 20 ms of each step.
Parts alike(std::size_t world) { return Parts(world); }

// The rank's math takes so many times 20 ms more.
Parts with_slow(std::size_t world, std::size_t rank, double times) {
  Parts parts = alike(world);
  parts[rank].math += 0.02 * (times - 1);
  return parts;
}

// A job whose coordinator hears of every rank every two seconds, a window each time after the first.
class Job {
 public:
  explicit Job(std::size_t world) : times_(world) { (void)run(1, alike(world)); }

  // Returns the verdicts that were news.
  std::vector<Verdict> run(int windows, const Parts& parts, std::int64_t steps = kWindowSteps) {
    std::vector<Verdict> news;
    for (int window = 0; window < windows; ++window) {
      now_ += kWindow;
      for (std::size_t rank = 0; rank < times_.size(); ++rank) {
        add(parts[rank], steps, times_[rank]);
        if (auto verdict = tell(static_cast<int>(rank), times_[rank])) news.push_back(*verdict);
      }
    }
    return news;
  }
  std::optional<Verdict> tell(int rank, const StepTimes& times) {
    return watch.take(
        rank, static_cast<int>(times_.size()), times, [](int of) { return "node" + std::to_string(of); },
        now_);
  }
  void pass(Millis time) { now_ += time; }

  StragglerWatch watch;

 private:
  static void add(const Part& part, std::int64_t steps, StepTimes& times) {
    const auto count = static_cast<double>(steps);
    times.steps += steps;
    times.math += part.math * count, times.data += part.data * count, times.other += part.other * count;
    times.microbatches += static_cast<std::int64_t>(part.microbatches * count);
  }

  std::vector<StepTimes> times_;
  Millis now_ = 0;
};

TEST_CASE("a rank is slow above 1.2 times the median of the ranks, and not below") {
  for (std::size_t world : {3, 4, 8}) {
    CAPTURE(world);
    Job below(world), above(world);
    CHECK(below.run(8, with_slow(world, 1, 1.19)).empty());
    CHECK_FALSE(below.watch.verdict().has_value());
    CHECK(above.run(8, with_slow(world, 1, 1.21)).size() == 1);
    REQUIRE(above.watch.verdict().has_value());
    CHECK(above.watch.verdict()->rank == 1);
  }
}

TEST_CASE("the median of two ranks is between them") {
  Job below(2), above(2);
  CHECK(below.run(8, with_slow(2, 0, 1.45)).empty());  // 1.18 times 1.225
  CHECK(above.run(8, with_slow(2, 0, 1.55)).size() == 1);
  REQUIRE(above.watch.verdict().has_value());
  CHECK(above.watch.verdict()->rank == 0);
}

TEST_CASE("one rank is never slow, nor are ranks that are alike, or slow together") {
  for (std::size_t world : {1, 2, 3, 8}) {
    Job job(world);
    CHECK(job.run(8, alike(world)).empty());
    CHECK(job.run(8, Parts(world, {.math = 0.5})).empty());
    CHECK_FALSE(job.watch.verdict().has_value());
  }
}

TEST_CASE("a rank is named while it was slow in three of the last four windows") {
  Job job(4);
  const Parts slow = with_slow(4, 3, 1.75), well = alike(4);
  CHECK(job.run(2, slow).empty());
  CHECK(job.run(3, well).empty());
  CHECK(job.run(1, slow).empty());
  CHECK(job.run(1, well).empty());
  CHECK(job.run(1, slow).empty());
  const auto named = job.run(1, slow);
  REQUIRE(named.size() == 1);
  CHECK(named[0].rank == 3);
  CHECK(job.run(4, slow).empty());
  CHECK(job.run(1, well).empty());
  CHECK(job.watch.verdict().has_value());
  const auto gone = job.run(1, well);
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].text.empty());
  CHECK(gone[0].rank == -1);
  CHECK_FALSE(job.watch.verdict().has_value());
}

TEST_CASE("the verdict has the rank, its host, the factor, and the part with most of what it takes longer") {
  const auto expect = [](double Part::*part, double more, const char* cause, const char* text) {
    Job job(4);
    Parts parts = alike(4);
    parts[1].*part += more, parts[1].math += 0.001;
    const auto news = job.run(8, parts);
    REQUIRE(news.size() == 1);
    CHECK(news[0].cause == cause);
    CHECK(news[0].text == text);
  };
  expect(&Part::math, 0.01, "math",
         "rank 1 on node1 slows the run: it takes 1.6 times as long as the median of all ranks, 11.0 ms of "
         "each step more for math");
  expect(&Part::data, 0.011, "data",
         "rank 1 on node1 slows the run: it takes 1.6 times as long as the median of all ranks, 11.0 ms of "
         "each step more for data");
  expect(&Part::other, 0.021, "other",
         "rank 1 on node1 slows the run: it takes 2.1 times as long as the median of all ranks, 21.0 ms of "
         "each step more for other");
}

TEST_CASE("what a slow rank costs is a share of the step") {
  Job job(4);
  job.run(4, with_slow(4, 1, 2));
  REQUIRE(job.watch.verdict().has_value());
  CHECK(job.watch.verdict()->loss == doctest::Approx(0.5));
}

TEST_CASE("another cause or rank is news, and of several slow ranks the slowest is named until it is not") {
  Job job(5);
  Parts two = with_slow(5, 3, 3);
  two[1].math += 0.02;
  const auto named = job.run(4, two);
  REQUIRE(named.size() == 1);
  CHECK(named[0].rank == 3);
  two[1].math += 0.1;
  CHECK(job.run(4, two).empty());
  two[3].math = 0.018, two[3].data += 0.2;
  auto news = job.run(4, two);
  REQUIRE(news.size() == 1);
  CHECK(news[0].rank == 3);
  CHECK(news[0].cause == "data");
  two[3] = {};
  news = job.run(4, two);
  REQUIRE(news.size() == 1);
  CHECK(news[0].rank == 1);
}

TEST_CASE("a rank with more microbatches is not slow, and one of fewer may be") {
  Parts parts(3, {.math = 0.027, .microbatches = 3});  // 3, 3 and 2 of them
  parts[2] = {.math = 0.018, .microbatches = 2};
  Job even(3), slow(3);
  CHECK(even.run(8, parts).empty());
  parts[2].math = 0.036;
  slow.run(8, parts);
  REQUIRE(slow.watch.verdict().has_value());
  CHECK(slow.watch.verdict()->rank == 2);
}

TEST_CASE("each rank's own time is told by what is usual for its work, or not at all") {
  using Ratios = std::vector<int>;
  Job job(4);
  CHECK(job.watch.ratios().empty());
  CHECK(job.watch.windows() == 0);
  Parts parts = with_slow(4, 1, 1.75);
  job.run(1, parts);
  CHECK(job.watch.ratios() == Ratios{1000, 1750, 1000, 1000});
  parts[1].microbatches = 8;  // it has twice the work: 39 ms are usual for that
  job.run(1, parts);
  CHECK(job.watch.ratios()[1] == 897);
  job.run(1, Parts(4, {.math = 0, .data = 0, .other = 0}));
  CHECK(job.watch.ratios() == Ratios(4, kUnknownRatio));
  CHECK(job.watch.windows() == 3);
}

TEST_CASE("a window has so many steps and so much time") {
  Job job(4);
  job.run(1, alike(4), kWindowSteps - 1);
  CHECK(job.watch.windows() == 0);
  job.run(1, alike(4), 1);
  CHECK(job.watch.windows() == 1);
  job.pass(-1);
  job.run(1, alike(4));
  CHECK(job.watch.windows() == 1);
  job.pass(1 - kWindow);
  job.run(1, alike(4), 0);
  CHECK(job.watch.windows() == 2);
}

TEST_CASE("a rank that says nothing leaves the others unjudged, and numbers that fall begin anew") {
  Job job(2);
  StepTimes times{.steps = 20, .math = 1, .data = 1, .other = 1, .microbatches = 100};
  for (int window = 0; window < 100; ++window) {
    job.pass(kWindow);
    times.steps += 50, times.math += 1;
    CHECK_FALSE(job.tell(0, times).has_value());
  }
  CHECK_FALSE(job.tell(7, times).has_value());
  CHECK_FALSE(job.tell(-1, times).has_value());
  times.math = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(job.tell(1, times).has_value());
  StepTimes falls{.math = 100};
  for (int window = 0; window < 30; ++window) {
    job.pass(kWindow);
    falls.steps += 40, falls.math -= 0.5;
    CHECK_FALSE(job.tell(1, falls).has_value());
  }
  CHECK(job.watch.windows() == 0);
}

TEST_CASE("a job of another size begins anew") {
  StragglerWatch watch;
  const auto host_of = [](int) { return std::string("node"); };
  StepTimes times;
  for (int world : {4, 2})
    for (int window = 0; window < 5; ++window) {
      times.steps += kWindowSteps, times.math += 1;
      for (int rank = 0; rank < world; ++rank)
        (void)watch.take(rank, world, times, host_of, kWindow * times.steps);
      CHECK(watch.ratios().size() == (window > 0 ? static_cast<std::size_t>(world) : 0));
    }
}

}  // namespace
}  // namespace dtrun::rendezvous::straggler_test
