#include "worker/device/cuda/cudnn/stored_plans.h"

#include <utility>

#include "proto/json/json.h"

namespace dtrun::worker::cuda {

StoredPlans::StoredPlans(const std::string& text, std::string cudnn_version, std::string device_name)
    : cudnn_version_(std::move(cudnn_version)), device_name_(std::move(device_name)) {
  const Json stored = parse_json(text);
  if (!stored.is_object() || stored.value("cudnn", Json()) != cudnn_version_ ||
      stored.value("device", Json()) != device_name_)
    return;
  const Json plans = stored.value("plans", Json::object());
  for (const auto& [identity, plan] : plans.items())
    if (plan.is_string()) plans_[identity] = plan.get<std::string>();
}

const std::string* StoredPlans::find(const std::string& identity) const {
  const auto found = plans_.find(identity);
  return found == plans_.end() ? nullptr : &found->second;
}

std::string StoredPlans::text() const {
  return json_text({{"cudnn", cudnn_version_}, {"device", device_name_}, {"plans", plans_}}, 1);
}

}  // namespace dtrun::worker::cuda
