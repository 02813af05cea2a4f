#include "cmd/commands/answer.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "proto/core/exit_codes.h"

namespace dtrun::cmd {

int answer(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return kExitOk;
  std::fprintf(stderr, "dtrun: standard output: %s\n", std::strerror(errno));
  return kExitSoftware;
}

int fail(const Status& status) {
  std::istringstream lines(status.message());
  for (std::string line; std::getline(lines, line);) std::fprintf(stderr, "dtrun: %s\n", line.c_str());
  return status.exit_code();
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace dtrun::cmd
