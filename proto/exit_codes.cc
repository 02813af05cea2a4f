#include "proto/exit_codes.h"

#include <cstring>

namespace dtrun {

bool is_deterministic_failure(int exit_code) {
  return exit_code == kExitUsage || exit_code == kExitNoInput || exit_code == kExitNoPermission ||
         exit_code == kExitConfig;
}

std::string describe_exit(int exit_code, int signal) {
  if (signal == 0) return "exit code " + std::to_string(exit_code);
  const char* name = sigabbrev_np(signal);
  return "signal " + std::to_string(signal) + (name ? std::string(" (SIG") + name + ")" : std::string());
}

}  // namespace dtrun
