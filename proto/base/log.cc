// The only file that includes spdlog: its headers cost several seconds in each file that does.
#include "proto/base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

namespace dtrun {

void set_up_log(const std::string& who) {
  auto logger = spdlog::stderr_logger_mt(who.empty() ? "worker" : who);
  logger->set_pattern(who.empty() ? "%v" : who + ": %v");
  if (const char* level = std::getenv("DTRUN_LOG_LEVEL")) logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

void log_debug(const std::string& text) { spdlog::debug(text); }
void log_info(const std::string& text) { spdlog::info(text); }
void log_warn(const std::string& text) { spdlog::warn(text); }

namespace {

class ReaderSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit ReaderSink(std::function<void(const std::string&)> reader) : reader_(std::move(reader)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    reader_({message.payload.data(), message.payload.size()});
  }
  void flush_() override {}

  const std::function<void(const std::string&)> reader_;
};

}  // namespace

void set_log_reader(std::function<void(const std::string& text)> reader) {
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<ReaderSink>(std::move(reader))));
}

}  // namespace dtrun
