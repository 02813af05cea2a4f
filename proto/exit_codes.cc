#include "proto/exit_codes.h"

#include <cstring>

namespace dtrun {

bool is_deterministic_failure(int exit_code) {
  return exit_code == kExitUsage || exit_code == kExitNoInput || exit_code == kExitNoPermission ||
         exit_code == kExitConfig;
}

std::string describe_exit(int exit_code, int signal, EndCause cause) {
  if (signal == 0) return "exit code " + std::to_string(exit_code);
  std::string text = "signal " + std::to_string(signal);
  if (const char* name = sigabbrev_np(signal)) text += std::string(" (SIG") + name + ")";
  if (cause == EndCause::kOutOfMemory) text += ": out of memory";
  if (cause == EndCause::kHung) text += ": it hung";
  return text;
}

}  // namespace dtrun
