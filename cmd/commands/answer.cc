#include "cmd/commands/answer.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

ColourMode colour_mode = ColourMode::kAuto;

Palette palette_of(int fd) { return Palette(wants_colour(colour_mode, std::getenv, isatty(fd) == 1)); }

}  // namespace

void set_colour(ColourMode mode) { colour_mode = mode; }

Palette palette_of_answers() { return palette_of(STDOUT_FILENO); }

int answer(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return kExitOk;
  return fail(errno_status(kExitSoftware, "standard output", errno));
}

int fail(const Status& status) {
  const Palette palette = palette_of(STDERR_FILENO);
  for (const std::string& line : split(status.message()))
    std::fprintf(stderr, "dtrun: %s\n", palette.error(line).c_str());
  return status.exit_code();
}

void notice(const std::string& text) {
  std::fprintf(stderr, "dtrun: %s\n", palette_of(STDERR_FILENO).message(text).c_str());
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace dtrun::cmd
