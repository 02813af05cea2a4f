#include "proto/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace dtrun {

void set_up_log(const std::string& who) {
  auto logger = spdlog::stderr_logger_mt(who.empty() ? "worker" : who);
  logger->set_pattern(who.empty() ? "%v" : who + ": %v");
  if (const char* level = std::getenv("DTRUN_LOG_LEVEL")) logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace dtrun
