#include "agent/output/event_log.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "proto/base/clock.h"
#include "proto/json/json.h"

namespace dtrun::agent {

EventLog::EventLog(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& held_back,
                   std::string host, std::function<void(const std::string& why)> failed)
    : host_(std::move(host)), failed_(std::move(failed)) {
  for (const std::filesystem::path& folder : folders) {
    File& file = files_.emplace_back();
    file.path = folder / "events.jsonl";
    std::error_code ignored;
    file.waits = folder == held_back || !std::filesystem::exists(folder, ignored);
    if (!file.waits) open(file);
  }
}

void EventLog::open(File& file) {
  file.descriptor.reset(::open(file.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.descriptor.open()) file.open_error = errno;
}

void EventLog::begin() {
  begun_ = true;
  for (File& file : files_) {
    if (!std::exchange(file.waits, false)) continue;
    std::error_code ignored;  // open() finds out
    std::filesystem::create_directories(file.path.parent_path(), ignored);
    open(file);
    append(file, std::exchange(file.waiting, ""));
  }
}

void EventLog::fail(File& file, int error) {
  if (std::exchange(file.failed, true)) return;
  failed_("cannot write " + file.path.string() + ": " + std::strerror(error) + "; events are missing there");
}

void EventLog::append(File& file, const std::string& text) {
  if (file.waits) {
    file.waiting += text;
    return;
  }
  if (!file.descriptor.open()) return fail(file, file.open_error);
  const ssize_t n = ::write(file.descriptor.get(), text.data(), text.size());
  if (n != static_cast<ssize_t>(text.size())) fail(file, n < 0 ? errno : ENOSPC);
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
