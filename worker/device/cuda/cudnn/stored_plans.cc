#include "worker/device/cuda/cudnn/stored_plans.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace dtrun::worker::cuda {

using nlohmann::json;

StoredPlans::StoredPlans(const std::string& text, std::string cudnn_version, std::string device_name)
    : cudnn_version_(std::move(cudnn_version)), device_name_(std::move(device_name)) {
  const json stored = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!stored.is_object() || stored.value("cudnn", json()) != cudnn_version_ ||
      stored.value("device", json()) != device_name_)
    return;
  const json plans = stored.value("plans", json::object());
  for (const auto& [identity, plan] : plans.items())
    if (plan.is_string()) plans_[identity] = plan.get<std::string>();
}

const std::string* StoredPlans::find(const std::string& identity) const {
  const auto found = plans_.find(identity);
  return found == plans_.end() ? nullptr : &found->second;
}

std::string StoredPlans::text() const {
  return json{{"cudnn", cudnn_version_}, {"device", device_name_}, {"plans", plans_}}.dump(1);
}

}  // namespace dtrun::worker::cuda
