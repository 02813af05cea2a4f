// The texts that count as stored plans.
#include "worker/device/cuda/cudnn/stored_plans.h"

#include <doctest/doctest.h>

namespace dtrun::stored_plans_test {

using dtrun::worker::cuda::StoredPlans;

namespace {

bool has(const std::string& text, const std::string& version, const std::string& device) {
  return StoredPlans(text, version, device).find("attention") != nullptr;
}

}  // namespace

TEST_CASE("stored plans are for the same version of cuDNN and the same GPU only") {
  StoredPlans plans("", "9.19.0", "NVIDIA H200");
  CHECK(plans.find("attention") == nullptr);
  plans.put("attention", "how");
  const std::string text = plans.text();
  const StoredPlans again(text, "9.19.0", "NVIDIA H200");
  REQUIRE(again.find("attention") != nullptr);
  CHECK(*again.find("attention") == "how");
  CHECK(again.text() == text);
  CHECK(!has(text, "9.20.0", "NVIDIA H200"));
  CHECK(!has(text, "9.19.0", "NVIDIA H100 80GB HBM3"));
}

TEST_CASE("a text that is not what it should be has no plans") {
  for (const char* text : {"", "{", "[]", "7", "null", R"({"cudnn": "1", "device": "g"})",
                           R"({"cudnn": 1, "device": "g", "plans": {"attention": "how"}})",
                           R"({"cudnn": "1", "device": "g", "plans": {"attention": 3}})",
                           R"({"cudnn": "1", "device": "g", "plans": ["attention"]})",
                           R"({"cudnn": "1", "device": "g", "plans": 4})"}) {
    CAPTURE(text);
    CHECK(!has(text, "1", "g"));
  }
  CHECK(has(R"({"cudnn": "1", "device": "g", "plans": {"attention": "how", "other": 3}})", "1", "g"));
}

}  // namespace dtrun::stored_plans_test
