// The schedules of transformers.get_scheduler.
#include <doctest/doctest.h>

#include "worker/base/error.h"
#include "worker/optim/optimizer.h"

using namespace dtrun::worker;

namespace {
double rate(const std::string& type, std::int64_t warmup, std::int64_t step, std::int64_t total = 100) {
  TrainConfig config;
  config.learning_rate = 0.5;
  config.lr_scheduler_type = type;
  config.warmup_steps = warmup;
  return learning_rate_at(config, step, total);
}
}  // namespace

TEST_CASE("constant is constant and has no warm-up") {
  CHECK(rate("constant", 0, 0) == 0.5);
  CHECK(rate("constant", 10, 3) == 0.5);
}

TEST_CASE("a warm-up rises linearly from zero and reaches the rate at warmup_steps") {
  for (const char* type : {"constant_with_warmup", "linear", "cosine"}) {
    CAPTURE(type);
    CHECK(rate(type, 10, 0) == 0.0);
    CHECK(rate(type, 10, 3) == doctest::Approx(0.15));
    CHECK(rate(type, 10, 10) == 0.5);
  }
  CHECK(rate("constant_with_warmup", 10, 99) == 0.5);
}

TEST_CASE("linear falls to zero at the end of the run and stays there") {
  CHECK(rate("linear", 0, 0) == 0.5);
  CHECK(rate("linear", 0, 50) == doctest::Approx(0.25));
  CHECK(rate("linear", 20, 60) == doctest::Approx(0.25));
  CHECK(rate("linear", 20, 100) == 0.0);
  CHECK(rate("linear", 20, 130) == 0.0);
}

TEST_CASE("cosine falls along half a wave") {
  CHECK(rate("cosine", 0, 25) == doctest::Approx(0.5 * 0.8535533905932737));
  CHECK(rate("cosine", 20, 60) == doctest::Approx(0.25));
  CHECK(rate("cosine", 20, 100) == doctest::Approx(0.0));
}

TEST_CASE("a warm-up as long as the run divides by nothing") {
  CHECK(rate("linear", 100, 100) == 0.0);
  CHECK(rate("cosine", 100, 100) == 0.5);
}

TEST_CASE("an unknown schedule is refused") { CHECK_THROWS_AS(rate("cubic", 0, 0), WorkerError); }
