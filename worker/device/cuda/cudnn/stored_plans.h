// Plans of an earlier start, which spare a worker cuDNN's compilation (a second for each plan). Only texts in
// memory: the caller keeps them in a file.
#pragma once

#include <map>
#include <string>

namespace dtrun::worker::cuda {

// One user at a time.
class StoredPlans {
 public:
  // The plans in `text`, if this version of cuDNN made them for a GPU of this name. No plans for another
  // text, also for one that is damaged or empty.
  StoredPlans(const std::string& text, std::string cudnn_version, std::string device_name);

  // Null if there is none.
  const std::string* find(const std::string& identity) const;
  void put(const std::string& identity, std::string plan) { plans_[identity] = std::move(plan); }
  // JSON: {"cudnn": "9.19.0", "device": "NVIDIA H200", "plans": {identity: cuDNN's own text}}
  std::string text() const;

 private:
  std::string cudnn_version_, device_name_;
  std::map<std::string, std::string> plans_;
};

}  // namespace dtrun::worker::cuda
