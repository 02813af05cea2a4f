#include "cmd/commands/answer.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "proto/core/exit_codes.h"

namespace dtrun::cmd {

int answer(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return kExitOk;
  std::fprintf(stderr, "dtrun: standard output: %s\n", std::strerror(errno));
  return kExitSoftware;
}

}  // namespace dtrun::cmd
