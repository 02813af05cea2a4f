// LOG_DIR/RUN_ID/events.jsonl: what the agent did and why, one JSON object a line. Agents that share the
// directory append to one file; each line is one write.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>

#include "agent/descriptor.h"

namespace dtrun::agent {

class EventLog {
 public:
  using Value = std::variant<std::int64_t, std::string>;
  using Fields = std::initializer_list<std::pair<const char*, Value>>;

  // `file` empty: writes nothing. `host` is put into each line.
  EventLog(const std::filesystem::path& file, std::string host);

  void write(const char* event, Fields fields);

 private:
  Descriptor file_;
  std::string host_;
};

}  // namespace dtrun::agent
