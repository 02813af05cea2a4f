#include "proto/core/exit_codes.h"

#include <cstring>

namespace dtrun {

bool is_deterministic_failure(int exit_code) {
  return exit_code == kExitUsage || exit_code == kExitDataError || exit_code == kExitNoInput ||
         exit_code == kExitCannotCreate || exit_code == kExitNoPermission || exit_code == kExitConfig;
}

std::string describe_exit(int exit_code, int signal, EndCause cause) {
  std::string text =
      signal == 0 ? "exit code " + std::to_string(exit_code) : "signal " + std::to_string(signal);
  const char* name = signal == 0 ? nullptr : sigabbrev_np(signal);
  if (name != nullptr) text += std::string(" (SIG") + name + ")";
  if (cause == EndCause::kOutOfMemory) text += ": out of memory";
  if (cause == EndCause::kHung) text += ": it hung";
  return text;
}

}  // namespace dtrun
