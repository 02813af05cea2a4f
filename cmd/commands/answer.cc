#include "cmd/commands/answer.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

ColourMode colour_mode = ColourMode::kAuto;

// Called in a signal handler.
extern "C" void end_late(int) {
  constexpr std::string_view kLine =
      "dtrun: no answer in time: a name server or a coordinator does not answer\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kLine.data(), kLine.size());
  _exit(kExitUnavailable);
}

Palette palette_of(int fd) { return Palette(wants_colour(colour_mode, std::getenv, isatty(fd) == 1)); }

}  // namespace

void set_colour(ColourMode mode) { colour_mode = mode; }

Palette palette_of_answers() { return palette_of(STDOUT_FILENO); }

void answer_within(std::chrono::seconds limit) {
  std::signal(SIGALRM, end_late);
  alarm(static_cast<unsigned>(limit.count()));
}

int answer(const std::string& text) {
  const unsigned left = alarm(0);  // its reader has all the time
  const bool told = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  alarm(left);
  if (told) return kExitOk;
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
