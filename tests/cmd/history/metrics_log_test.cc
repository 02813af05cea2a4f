#include "cmd/history/metrics_log.h"

#include <doctest/doctest.h>

#include <sstream>

namespace dtrun::cmd::metrics_log_test {
namespace {

MetricsLog metrics_in(const std::string& text) {
  std::istringstream stream(text);
  return read_metrics(stream);
}

}  // namespace

TEST_CASE("numbers of training and of evaluations are curves by their names") {
  const MetricsLog log = metrics_in(
      R"({"event":"start","step":0,"world_size":3,"generation":2,"from":"checkpoint","device":"cpu","parameters":77,"time":1.5}
{"event":"train","step":2,"epoch":0.5,"loss":2.25,"grad_norm":0.5,"generation":2,"time":3}
{"event":"eval","step":2,"loss":2.5,"accuracy":0.25,"time":3.5}
{"event":"save","step":2,"stall_milliseconds":1.5,"time":3.75}
{"event":"train","step":4,"epoch":1,"loss":2,"grad_norm":0.75,"time":4}
{"event":"end","step":4,"params_sha256":"ab","best_step":2,"time":5}
)");
  CHECK(log.train.at("loss") == Curve{{2, 2.25}, {4, 2}});
  CHECK(log.train.at("grad_norm") == Curve{{2, 0.5}, {4, 0.75}});
  CHECK_FALSE(log.train.contains("generation"));
  CHECK_FALSE(log.train.contains("time"));
  CHECK(log.eval.at("accuracy") == Curve{{2, 0.25}});
  CHECK(log.stalls == Curve{{2, 1.5}});
  REQUIRE(log.starts.size() == 1);
  CHECK(log.starts[0].generation == 2);
  CHECK(log.starts[0].world_size == 3);
  CHECK(log.starts[0].from == "checkpoint");
  CHECK(log.starts[0].parameters == 77);
  CHECK(log.last_step == 4);
  CHECK(log.last_time == 5);
  CHECK(log.params_sha256 == "ab");
  CHECK(log.best_step == 2);
  CHECK(log.unreadable == 0);
}

TEST_CASE("steps that are done again replace those before") {
  const MetricsLog log = metrics_in(
      R"({"event":"train","step":1,"loss":5}
{"event":"train","step":2,"loss":4}
{"event":"train","step":3,"loss":3}
{"event":"train","step":2,"loss":7}
)");
  CHECK(log.train.at("loss") == Curve{{1, 5}, {2, 7}});
  CHECK(log.last_step == 2);
}

TEST_CASE("torn lines, garbage and numbers that are not finite harm nothing else") {
  const MetricsLog log = metrics_in(
      "\xff\xfe\n[]\n7\n{}\n\n"
      R"({"event":"train","step":-1,"loss":5}
{"event":7,"step":1}
{"event":"train","step":"x","loss":5}
{"event":"train","step":1,"loss":null,"grad_norm":2}
{"event":"train","step":2,"loss":1e999}
{"event":"train","step":3,"loss":4,"time":"late"}
{"event":"train","step":4,"lo)");
  CHECK(log.train.at("loss") == Curve{{3, 4}});
  CHECK(log.train.at("grad_norm") == Curve{{1, 2}});
  CHECK(log.unreadable == 9);
}

}  // namespace dtrun::cmd::metrics_log_test
