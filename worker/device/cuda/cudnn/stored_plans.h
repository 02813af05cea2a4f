// Plans of an earlier start, so that a worker need not have cuDNN compile them again (a second each). Texts
// in memory: who has a folder for them keeps the whole as one file.
#pragma once

#include <map>
#include <string>

namespace dtrun::worker::cuda {

// One user at a time.
class StoredPlans {
 public:
  // Those of `text` that were made by this version of cuDNN for a GPU of this name. Of another text, also of
  // one that is broken or empty: none.
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
