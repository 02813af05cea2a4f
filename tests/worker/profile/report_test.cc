// The report of the times that lanes record: rows, shares, the table.
#include "worker/profile/report.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/worker/profile/chain.h"

using namespace dtrun::worker;
using Json = nlohmann::json;

TEST_CASE("nodes that do the same are one row, times are those of one lane in one step") {
  const auto rows = rows_of(chain(), kTwoLanes, 8, 2);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].what == "Linear 16 -> 16");
  CHECK(rows[0].nodes == 2);
  CHECK(rows[0].forward == doctest::Approx((10 + 8) * 2 / 4.0 * 1e-3));
  CHECK(rows[0].backward == doctest::Approx((20 + 10 + 20 + 20) / 4.0 * 1e-3));
  // A lane has four of the samples; the first layer's input needs no gradient.
  CHECK(rows[0].cost.flops == 2.0 * 4 * 16 * 16 * (2 + 3));
  CHECK(rows[1].what == "Linear 16 -> 4, and the loss");
  CHECK(rows[1].cost.flops == 2.0 * 4 * 16 * 4 * 3);
  CHECK(rows[2].what == "ReLU 16");
}

TEST_CASE("a lane that tells of the last linear layer by itself has it in a row of its own") {
  const std::vector<std::vector<NodeTime>> lane{{ran(3, false, 0, 1), ran(3, true, 1, 4)}};
  const auto rows = rows_of(chain(), lane, 8, 1);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].what == "Linear 16 -> 4");
  CHECK(rows[0].cost.flops == 2.0 * 8 * 16 * 4 * 3);

  const std::vector<std::vector<NodeTime>> loss_too{
      {ran(3, false, 0, 1), ran(3, true, 1, 4), ran(4, true, 4, 5)}};
  const auto both = rows_of(chain(), loss_too, 8, 1);
  REQUIRE(both.size() == 2);
  CHECK(both[0].what == "Linear 16 -> 4");
  CHECK(both[1].what == describe(chain(), 4));
  CHECK(both[1].cost.flops == cost_of(chain(), 4, 8).backward.flops + cost_of(chain(), 4, 8).forward.flops);
}

TEST_CASE("a row's ceiling is that of what it needs more time for: matmuls or memory") {
  const Ceilings ceilings{.flops = 100e9, .bytes = 10e9};
  const ProfileRow matmul{
      .what = "", .nodes = 1, .forward = 0.02, .backward = 0, .cost = {.flops = 1e9, .bytes = 1e6}};
  CHECK(share_of_ceiling(matmul, ceilings) == doctest::Approx(0.5));
  const ProfileRow copy{
      .what = "", .nodes = 1, .forward = 0.01, .backward = 0.01, .cost = {.flops = 1e6, .bytes = 1e8}};
  CHECK(share_of_ceiling(copy, ceilings) == doctest::Approx(0.5));
  CHECK(share_of_ceiling({}, ceilings) == 0);
}

TEST_CASE("the table and the JSON say the same, and what is left of a step is told") {
  Profile profile;
  profile.job = "mlp", profile.machine = "a machine";
  profile.lanes = 2, profile.steps = 2, profile.samples = 8;
  profile.ceilings = {.flops = 100e9, .bytes = 10e9};
  profile.seconds = 0.050, profile.data = 0.002, profile.update = 0.003;
  profile.rows = rows_of(chain(), kTwoLanes, 8, 2);
  CHECK(profile.other() == doctest::Approx(0.050 - 0.002 - 0.003 - 0.0265 - 0.002 - 0.002));
  const std::string text = table(profile);
  CHECK(text.find("\nLinear 16 -> 16                            2   9.00 ms  17.50 ms     53 %") !=
        std::string::npos);
  CHECK(text.find("\nadding up, waiting for lanes, other           14.50 ms               29 %\n") !=
        std::string::npos);
  CHECK(text.find("\n160 samples/s, over 2 steps\n") != std::string::npos);
  const Json all = Json::parse(json(profile));
  CHECK(all["rows"].size() == 3);
  CHECK(all["rows"][0]["backward_seconds"].get<double>() == doctest::Approx(0.0175));
  CHECK(all["device"] == "cpu");
  CHECK(all["other_seconds"].get<double>() == doctest::Approx(profile.other()));
}
