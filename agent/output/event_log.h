// events.jsonl in each of the job's folders: the agent's actions and their reasons, one JSON object a line.
// Agents that share a folder append to one file; each line is one write.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "agent/output/queued_log.h"

namespace dtrun::agent {

class EventLog {
 public:
  using Value = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string>;
  using Fields = std::initializer_list<std::pair<const char*, Value>>;

  // None of `folders`: writes nothing. One that does not exist gets its file at begin(), and so does
  // `held_back`, one of them or empty. `host` is put into each line. `failed` is called for the first event
  // that cannot be written, once for each file. `disk` writes them.
  EventLog(Disk& disk, const std::vector<std::filesystem::path>& folders,
           const std::filesystem::path& held_back, std::string host,
           std::function<void(const std::string& why)> failed);

  // Gets each event's name and line, too, with a file or without.
  void set_listener(std::function<void(std::string_view event, const std::string& line)> listener) {
    listener_ = std::move(listener);
  }

  void write(const char* event, Fields fields);

  // The job begins here: makes the folders that do not exist, with all events so far. A job that is refused
  // before that leaves nothing there.
  void begin();
  bool begun() const { return begun_; }

 private:
  struct File {
    std::filesystem::path path;
    std::unique_ptr<QueuedLog> log;  // null: waits for begin()
    std::string waiting;             // lines
    bool failed = false;             // that was told
  };

  void open(File& file);
  void append(File& file, const std::string& text);
  void fail(File& file, const std::string& why);

  Disk& disk_;
  std::vector<File> files_;
  bool begun_ = false;
  std::string host_;
  std::function<void(const std::string& why)> failed_;
  std::function<void(std::string_view event, const std::string& line)> listener_;
};

}  // namespace dtrun::agent
