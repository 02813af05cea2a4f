// The report of the times of a device's operations: rows, shares, floors, the table.
#include "worker/profile/report.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace dtrun::report_test {

using namespace dtrun::worker;
using Json = nlohmann::json;

namespace {

const Ceilings kCeilings{.flops = 100e12, .bytes = 1e12};

// Two steps of 10 ms. In each: a matmul of 4 ms of two nodes' turns on the lane; beside its last 2 ms and
// for one more, another one on the side; then, after a gap of 1 ms, an update of 1.5 ms.
OpTimes two_steps() {
  const OpCost matmul{.flops = 100e9, .read = 1e8, .written = 1e8};
  OpTimes times{
      .ops = {{.kind = {"Linear", "forward"}, .node = 1, .cost = matmul},
              {.kind = {"Linear", "forward"}, .node = 3, .cost = matmul},
              {.kind = {"Linear", "weight gradient"}, .node = 3, .cost = matmul},
              {.kind = {"AdamW", ""}, .node = -1, .cost = {.flops = 0, .read = 6e8, .written = 4e8}}},
      .streams = {"lane", "side 1", "update"},
      .times = {}};
  for (const double from : {0.0, 0.010}) {
    const auto ran = [&](int op, int stream, double begin, double end) {
      times.times.push_back({.op = op, .stream = stream, .begin = from + begin, .end = from + end});
    };
    ran(0, 0, 0, 0.002);
    ran(1, 0, 0.002, 0.004);
    ran(2, 1, 0.002, 0.005);
    ran(3, 2, 0.006, 0.0075);
  }
  return times;
}

Profile profile() {
  Profile p;
  p.job = "a job", p.machine = "a GPU", p.device = "cuda";
  p.steps = 2, p.untimed_steps = 3, p.samples = 8;
  p.ceilings = kCeilings;
  p.seconds = 0.008, p.timed_seconds = 0.010, p.data = 0.001, p.update = 0.003;
  p.rows = rows_of(two_steps(), kCeilings, 2);
  return p;
}

}  // namespace

TEST_CASE("operations of one kind on one stream are a row, of one step") {
  const auto rows = rows_of(two_steps(), kCeilings, 2);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].kind == OpKind{"Linear", "forward"});
  CHECK(rows[0].stream == "lane");
  CHECK(rows[0].nodes == 2);
  CHECK(rows[0].launches == 2);
  CHECK(rows[0].seconds == doctest::Approx(0.004));
  CHECK(rows[0].cost.flops == 200e9);
  CHECK(rows[0].cost.read == 2e8);
  CHECK(rows[1].stream == "side 1");
  CHECK(rows[2].kind.what == "AdamW");
  CHECK(rows[2].nodes == 0);
  CHECK(rows[2].launches == 1);
}

TEST_CASE("time in which two streams ran is divided between them, so that shares and gaps are a step") {
  const Profile p = profile();
  CHECK(p.rows[0].share_seconds == doctest::Approx(0.003));
  CHECK(p.rows[1].seconds == doctest::Approx(0.003));
  CHECK(p.rows[1].share_seconds == doctest::Approx(0.002));
  CHECK(p.rows[2].share_seconds == doctest::Approx(0.0015));
  CHECK(p.busy() == doctest::Approx(0.0065));
  CHECK(p.gaps() == doctest::Approx(0.0035));
}

TEST_CASE("a row's floor is what each operation needs more time for: matmuls or memory") {
  const auto rows = rows_of(two_steps(), kCeilings, 2);
  CHECK(rows[0].floor == doctest::Approx(2e-3));  // 100 GFLOP, each
  CHECK(rows[2].floor == doctest::Approx(1e-3));  // 1 GB
  CHECK(profile().floor() == doctest::Approx(4e-3));
}

TEST_CASE("three streams at once, one that ends as another begins, and one that took no time") {
  const TimedOp op{.kind = {"a", ""}, .node = -1, .cost = {}},
      other{.kind = {"b", ""}, .node = -1, .cost = {}};
  const OpTimes times{.ops = {op, other},
                      .streams = {"x", "y", "z"},
                      .times = {{.op = 0, .stream = 0, .begin = 0, .end = 3},
                                {.op = 1, .stream = 1, .begin = 0, .end = 3},
                                {.op = 0, .stream = 2, .begin = 0, .end = 3},
                                {.op = 0, .stream = 0, .begin = 3, .end = 4},
                                {.op = 1, .stream = 1, .begin = 3, .end = 3}}};
  const auto rows = rows_of(times, kCeilings, 1);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].stream == "x");
  CHECK(rows[0].share_seconds == doctest::Approx(2));
  CHECK(rows[1].share_seconds == doctest::Approx(1));
  CHECK(rows[2].share_seconds == doctest::Approx(1));
}

TEST_CASE("lanes that work at once are averaged, and what they wait is a gap") {
  const OpCost matmul{.flops = 1e9, .read = 1e6, .written = 1e6};
  const OpTimes times{.ops = {{.kind = {"Linear", "forward"}, .node = 0, .cost = matmul}},
                      .streams = {"lane", "lane"},
                      .times = {{.op = 0, .stream = 0, .begin = 0, .end = 0.020},
                                {.op = 0, .stream = 1, .begin = 0, .end = 0.030},
                                {.op = 0, .stream = 0, .begin = 0.020, .end = 0.040}}};
  Profile p;
  p.lanes = 2, p.timed_seconds = 0.050;
  p.rows = rows_of(times, {.flops = 100e9, .bytes = 10e9}, 1, 2);
  REQUIRE(p.rows.size() == 1);
  CHECK(p.rows[0].launches == 1.5);
  CHECK(p.rows[0].seconds == doctest::Approx(0.035));
  CHECK(p.rows[0].share_seconds == doctest::Approx(0.035));
  CHECK(p.rows[0].cost.flops == 1.5e9);
  CHECK(p.floor() == doctest::Approx(0.015));
  p.rows.push_back(row_beside("mean, norm and optimizer", 0.005));
  CHECK(p.gaps() == doctest::Approx(0.010));
  CHECK(table(p).find("\nmean, norm and optimizer                       1     5.00 ms     10 %\n") !=
        std::string::npos);
}

TEST_CASE("the table and the JSON say the same") {
  const Profile p = profile();
  CHECK(table(p) == R"(a job
a GPU
ceilings: matmuls 100 TFLOP/s, memory 1000 GB/s

in a step, one by one                   launches        time  of step  TFLOP/s     GB/s       floor  of ceiling
Linear, forward                                2     4.00 ms     30 %     50.0      100     2.00 ms        50 %
Linear, weight gradient (side 1)               1     3.00 ms     20 %     33.3     66.7     1.00 ms        33 %
AdamW (update)                                 1     1.50 ms     15 %               667     1.00 ms        67 %
gaps, in which none of these ran                     3.50 ms     35 %
a step                                         4    10.00 ms    100 %                       4.00 ms        40 %
a step as it is run                                  8.00 ms                                4.00 ms        50 %

1000 samples/s as it is run, over 3 steps; operations timed in 2
)");
  const Json all = Json::parse(json(p));
  CHECK(all["device"] == "cuda");
  CHECK(all["step_seconds"] == 0.008);
  CHECK(all["timed_step_seconds"] == 0.010);
  CHECK(all["ceiling"]["flops_per_second"] == 100e12);
  REQUIRE(all["rows"].size() == 3);
  double shares = all["gap_seconds"].get<double>() / all["timed_step_seconds"].get<double>();
  for (const Json& row : all["rows"]) {
    shares += row["share"].get<double>();
    CHECK(row["of_ceiling"].get<double>() ==
          doctest::Approx(row["floor_seconds"].get<double>() / row["seconds"].get<double>()));
    CHECK(row["bytes"] == row["read_bytes"].get<double>() + row["written_bytes"].get<double>());
  }
  CHECK(shares == doctest::Approx(1));
  CHECK(all["rows"][0]["forward_seconds"] == all["rows"][0]["seconds"]);
  CHECK(all["rows"][1]["backward_seconds"] == all["rows"][1]["seconds"]);
  CHECK(all["rows"][2]["forward_seconds"] == 0);
  CHECK(all["rows"][2]["backward_seconds"] == 0);
}

}  // namespace dtrun::report_test
