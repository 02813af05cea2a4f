#include "agent/output/event_log.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "agent/system/wall_clock.h"

namespace dtrun::agent {

EventLog::EventLog(std::filesystem::path file, std::string host,
                   std::function<void(const std::string& why)> failed)
    : path_(std::move(file)), host_(std::move(host)), failed_(std::move(failed)) {
  if (path_.empty()) return;
  file_.reset(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.open()) open_error_ = errno;
}

void EventLog::fail(int error) {
  const auto failed = std::exchange(failed_, nullptr);
  if (failed)
    failed("cannot write " + path_.string() + ": " + std::strerror(error) + "; events are missing there");
}

void EventLog::write(const char* event, Fields fields) {
  if (path_.empty() && !listener_) return;
  nlohmann::ordered_json line;
  line["time"] = wall_seconds();
  line["host"] = host_;
  line["agent"] = getpid();
  line["event"] = event;
  for (const auto& [name, value] : fields) {
    std::visit([&, key = name](const auto& v) { line[key] = v; }, value);
  }
  const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (listener_) listener_(event, text);
  if (path_.empty()) return;
  if (!file_.open()) return fail(open_error_);
  const ssize_t n = ::write(file_.get(), text.data(), text.size());
  if (n != static_cast<ssize_t>(text.size())) fail(n < 0 ? errno : ENOSPC);
}

}  // namespace dtrun::agent
