#include "agent/output/event_log.h"

#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/json/json.h"

namespace dtrun::agent {
namespace {

// Hours of events. A file system that hangs longer costs events, not memory.
constexpr std::size_t kMostQueued = 4u << 20;

}  // namespace

EventLog::EventLog(Disk& disk, const std::vector<std::filesystem::path>& folders,
                   const std::filesystem::path& held_back, std::string host,
                   std::function<void(const std::string& why)> failed)
    : disk_(disk), host_(std::move(host)), failed_(std::move(failed)) {
  files_.resize(folders.size());
  for (std::size_t i = 0; i < folders.size(); ++i) {
    files_[i].path = folders[i] / "events.jsonl";
    std::error_code ignored;
    if (folders[i] != held_back && std::filesystem::exists(folders[i], ignored)) open(files_[i]);
  }
}

void EventLog::open(File& file) {
  file.log = std::make_unique<QueuedLog>(disk_, file.path, 0, LogFile::Writers::kAnyNumber);
  file.log->listen({.failed = [this, &file](const Status& why) { fail(file, why.message()); },
                    .unwritten = {},
                    .written = {}});
}

void EventLog::begin() {
  begun_ = true;
  for (File& file : files_) {
    if (file.log) continue;
    open(file);
    append(file, std::exchange(file.waiting, ""));
  }
}

void EventLog::fail(File& file, const std::string& why) {
  if (!std::exchange(file.failed, true)) failed_(why + "; events are missing there");
}

void EventLog::append(File& file, const std::string& text) {
  if (!file.log) {
    file.waiting += text;
  } else if (file.log->queued() + text.size() > kMostQueued) {
    fail(file, file.path.string() + " takes nothing");
  } else if (file.log->takes()) {
    file.log->write(text);
  }
}

void EventLog::write(const char* event, Fields fields) {
  if (files_.empty() && !listener_) return;
  Json line;
  line["time"] = wall_seconds();
  line["host"] = host_;
  line["agent"] = getpid();
  line["event"] = event;
  for (const auto& [name, value] : fields) {
    std::visit([&, key = name](const auto& v) { line[key] = v; }, value);
  }
  const std::string text = json_text(line) + "\n";
  if (listener_) listener_(event, text);
  for (File& file : files_) append(file, text);
}

}  // namespace dtrun::agent
