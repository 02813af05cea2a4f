// LOG_DIR/RUN_ID/events.jsonl: the agent's actions and their reasons, one JSON object a line. Agents that
// share the directory append to one file; each line is one write.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "agent/system/descriptor.h"

namespace dtrun::agent {

class EventLog {
 public:
  using Value = std::variant<std::int64_t, double, std::string>;
  using Fields = std::initializer_list<std::pair<const char*, Value>>;

  // `file` empty: writes nothing. `host` is put into each line. `failed` is called for the first event that
  // cannot be written.
  EventLog(std::filesystem::path file, std::string host, std::function<void(const std::string& why)> failed);

  // Gets each event's name and line, too, with a file or without.
  void set_listener(std::function<void(std::string_view event, const std::string& line)> listener) {
    listener_ = std::move(listener);
  }

  void write(const char* event, Fields fields);

 private:
  void fail(int error);

  const std::filesystem::path path_;
  Descriptor file_;
  int open_error_ = 0;
  std::string host_;
  std::function<void(const std::string& why)> failed_;  // empty once it was called
  std::function<void(std::string_view event, const std::string& line)> listener_;
};

}  // namespace dtrun::agent
