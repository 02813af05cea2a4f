#include "agent/events.h"

#include <fcntl.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace dtrun::agent {

EventLog::EventLog(const std::filesystem::path& file, std::string host) : host_(std::move(host)) {
  if (!file.empty()) file_.reset(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}

void EventLog::write(const char* event, Fields fields) {
  if (!file_.open()) return;
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  nlohmann::ordered_json line;
  line["time"] = now.count();
  line["host"] = host_;
  line["agent"] = getpid();
  line["event"] = event;
  for (const auto& [name, value] : fields) {
    std::visit([&, key = name](const auto& v) { line[key] = v; }, value);
  }
  const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  [[maybe_unused]] const ssize_t n = ::write(file_.get(), text.data(), text.size());
}

}  // namespace dtrun::agent
