#include "worker/collective/gloo/gloo_store.h"

#include "worker/base/stop_point.h"

namespace dtrun::worker {

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  store_.set(prefix_ + key, std::string(data.begin(), data.end()), stop_);
}

std::vector<char> GlooStore::get(const std::string& key) {
  wait({key});
  const std::string& value = seen_.at(key);
  return {value.begin(), value.end()};
}

void GlooStore::wait(const std::vector<std::string>& keys) {
  stop_point(StopPoint::kConnecting);
  for (const std::string& key : keys) {
    if (!seen_.contains(key)) seen_.emplace(key, store_.get(prefix_ + key, timeout_, stop_));
  }
}

}  // namespace dtrun::worker
