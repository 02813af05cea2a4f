// Configs as tests write them, and what parse_config says to them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/config/config.h"

namespace dtrun::worker {

using Json = nlohmann::ordered_json;

inline Json smallest() {
  return {{"output_dir", "runs/x"},
          {"model", {{"type", "convnet"}}},
          {"data", {{"type", "fashion_mnist"}, {"path", "/data"}}}};
}

// The smallest config, fit for these overrides: synthetic data has no path.
inline std::string smallest_for(const std::vector<std::string>& overrides) {
  Json json = smallest();
  if (std::ranges::find(overrides, "data.type=synthetic") != overrides.end()) json["data"].erase("path");
  return json.dump();
}

// The smallest config with a `train` of this text.
inline std::string with_train(const std::string& train) {
  std::string text = smallest().dump();
  text.pop_back();
  return text + ", \"train\": " + train + "}";
}

inline Result<JobConfig> parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "c.json", overrides);
}

inline std::string fault_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const auto result = parse(text, overrides);
  if (result.ok()) return "accepted";
  CHECK(result.status().exit_code() == kExitConfig);
  return result.status().message();
}

inline JobConfig good(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const auto result = parse(text, overrides);
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  return result.value();
}

}  // namespace dtrun::worker
