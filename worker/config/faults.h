// The faults of a config, collected.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/core/status.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {

// Faults of one parse, each with its source: the file, or the override that set the value.
class Faults {
 public:
  explicit Faults(const std::string& source) : source_(source) {}

  // Attributes later faults at this pointer or below it to the override.
  void blame(const std::string& pointer, const std::string& override_text) {
    blamed_[pointer] = override_text;
  }

  void add(const std::string& pointer, const std::string& text) {
    faulty_.insert(pointer);
    add_line(where(pointer) + ": " + printable(pointer) + ": " + text);
  }
  void add_line(std::string line) { lines_.push_back(std::move(line)); }

  bool none() const { return lines_.empty(); }
  bool at(const std::string& pointer) const { return faulty_.contains(pointer); }

  Status status() const {
    std::string text;
    for (std::size_t i = 0; i < std::min(lines_.size(), kMostFaults); ++i) {
      text += (i > 0 ? "\n" : "") + lines_[i];
    }
    if (lines_.size() > kMostFaults) {
      text += "\n" + source_ + ": and " + std::to_string(lines_.size() - kMostFaults) + " more";
    }
    return Status(kExitConfig, text);
  }

 private:
  static constexpr std::size_t kMostFaults = 20;  // shown

  std::string where(std::string pointer) const {
    for (; !pointer.empty(); pointer.resize(pointer.rfind('/')))
      if (const auto blamed = blamed_.find(pointer); blamed != blamed_.end())
        return "override " + printable(blamed->second);
    return source_;
  }

  std::string source_;
  std::map<std::string, std::string> blamed_;
  std::set<std::string> faulty_;
  std::vector<std::string> lines_;
};

}  // namespace dtrun::worker
