#include "agent/output/kubeflow_status.h"

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

namespace dtrun::kubeflow_status_test {

using namespace dtrun::agent;
using Json = nlohmann::json;

namespace {

Json status_of(const Progress& progress, std::optional<double> seconds_left = {}) {
  return Json::parse(kubeflow_status_json(progress, seconds_left, "2026-11-23T20:00:00Z"))["trainerStatus"];
}

std::optional<KubeflowServer> server_of(const std::map<std::string, std::string>& environment) {
  return KubeflowServer::of([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("the status has the fields of KEP-2779, metrics as text") {
  const Json status = status_of({.step = 45,
                                 .total_steps = 200,
                                 .epoch = 0.5,
                                 .loss = 0.25,
                                 .learning_rate = 0.05,
                                 .samples_per_second = 9800,
                                 .accuracy = 0.75},
                                11.6);
  CHECK(status["progressPercentage"] == 22);
  CHECK(status["estimatedRemainingSeconds"] == 12);
  CHECK(status["lastUpdatedTime"] == "2026-11-23T20:00:00Z");
  std::map<std::string, std::string> metrics;
  for (const Json& metric : status["metrics"]) metrics[metric["name"]] = metric["value"];
  CHECK(metrics == std::map<std::string, std::string>{{"step", "45"},
                                                      {"epoch", "0.5"},
                                                      {"loss", "0.25"},
                                                      {"accuracy", "0.75"},
                                                      {"learning_rate", "0.05"},
                                                      {"samples_per_second", "9800.0"}});
}

TEST_CASE("what is not known is left out, and no percentage is beyond its bounds") {
  Progress progress;
  const Json loading = status_of(progress);
  CHECK(loading["progressPercentage"] == 0);
  CHECK(!loading.contains("estimatedRemainingSeconds"));
  for (const Json& metric : loading["metrics"])
    CHECK((metric["name"] != "loss" && metric["name"] != "accuracy"));
  progress.step = 201;
  progress.total_steps = 200;
  progress.loss = std::numeric_limits<double>::quiet_NaN();
  const Json diverged = status_of(progress);
  CHECK(diverged["progressPercentage"] == 100);
  for (const Json& metric : diverged["metrics"]) CHECK(metric["name"] != "loss");
}

TEST_CASE("Kubeflow asks by its variables, of which the names before 2.2 are known too") {
  CHECK(!server_of({}));
  CHECK(!server_of({{"KUBEFLOW_TRAINER_SERVER_URL", ""}}));
  const auto server = server_of({{"KUBEFLOW_TRAINER_SERVER_URL", "https://a/b"},
                                 {"KUBEFLOW_TRAINER_SERVER_CA_CERT", "/ca"},
                                 {"KUBEFLOW_TRAINER_SERVER_TOKEN", "/token"}});
  REQUIRE(server);
  CHECK(server->url == "https://a/b");
  CHECK(server->ca_file == "/ca");
  CHECK(server->token_file == "/token");
  CHECK(server_of({{"KUBEFLOW_TRAINER_STATUS_URL", "https://old"}})->url == "https://old");
}

}  // namespace dtrun::kubeflow_status_test
