#include "agent/gpu/ask_gpus.h"

#include <doctest/doctest.h>

#include "tests/support/clock.h"
#include "tests/support/fake_gpus.h"

namespace dtrun::ask_gpus_test {

using namespace dtrun::agent;
using namespace std::chrono_literals;

TEST_CASE("the process that asks prints a reading; what else it does is a failure in words") {
  const auto ask = [](const std::string& script, std::chrono::milliseconds limit = 60s) {
    return ask_gpus({"/bin/sh", "-c", script}, limit);
  };
  const GpuReading reading = ask(R"(echo '{"driver": "580.1", "cuda": 13000, "failure": "", "gpus": []}')");
  CHECK(reading.driver == "580.1");
  CHECK(reading.failure == "");
  CHECK(ask("echo hello").failure == "asking the NVIDIA driver failed");
  CHECK(ask("exit 1").failure == "asking the NVIDIA driver failed");
  CHECK(ask_gpus({"/no/such/dtrun"}, 60s).failure == "cannot start /no/such/dtrun to ask its driver");
}

TEST_CASE("a driver that does not answer is waited for no longer than the limit") {
  const test::Stopwatch watch;
  CHECK(ask_gpus({"/bin/sleep", "60"}, 1000ms).failure == "the NVIDIA driver did not answer for 1 s");
  CHECK(watch.fair() < 20s);
}

}  // namespace dtrun::ask_gpus_test
