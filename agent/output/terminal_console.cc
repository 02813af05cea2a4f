#include "agent/output/terminal_console.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "agent/text/terminal_line.h"

namespace dtrun::agent {
namespace {

// After a worker has been silent for this long, another worker's unfinished line may take its place.
constexpr auto kTurn = std::chrono::seconds(1);
constexpr char kClearLine[] = "\r\x1b[K";

// A terminal without escape sequences, as an editor's shell window.
bool is_dumb() {
  const char* term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) == "dumb";
}

bool are_one_terminal(const QueuedOutput& a, const QueuedOutput& b) {
  struct stat of_a {
  }, of_b{};
  return a.terminal() && b.terminal() && fstat(a.fd(), &of_a) == 0 && fstat(b.fd(), &of_b) == 0 &&
         of_a.st_rdev == of_b.st_rdev;
}

}  // namespace

TerminalConsole::TerminalConsole(Loop& loop, Disk& disk, ColourMode colour,
                                 std::function<void(bool)> congestion)
    : Console(Palette(wants_colour(colour, std::getenv, isatty(STDERR_FILENO) == 1))),
      congestion_(std::move(congestion)),
      out_(
          loop, disk, STDOUT_FILENO, [this] { update_congestion(); },
          [this](int error) { lose_standard_output(error); }),
      err_(
          loop, disk, STDERR_FILENO, [this] { update_congestion(); }, [](int) {}),
      one_terminal_(are_one_terminal(out_, err_)),
      dumb_(is_dumb()) {}

int TerminalConsole::columns() const {
  winsize size{};
  return ioctl(err_.fd(), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void TerminalConsole::write(Stream stream, std::string_view text) {
  const bool above = !bottom_.empty() && shares_terminal(stream);
  if (above) err_.push(clearing());
  (stream == Stream::kOut && !one_terminal_ ? out_ : err_).push(text);
  if (above) err_.push(bottom_);
}

void TerminalConsole::say(const std::string& text) {
  const bool in_a_line = err_.mid_line() && !err_.terminal();
  write(Stream::kErr, (in_a_line ? "\ndtrun: " : "dtrun: ") + text + "\n");
}

void TerminalConsole::set_bar(const std::string& bar) {
  if (!has_terminal()) return;
  bar_ = fitting(bar, columns() - 1);
  redraw();
}

void TerminalConsole::set_unfinished(const void* owner, std::string_view line) {
  if (!err_.terminal()) return;
  // Else several progress bars would replace each other with every update.
  const auto now = Loop::Clock::now();
  const bool taken = !unfinished_.empty() && now - unfinished_at_ < kTurn;
  if (owner != unfinished_owner_ && (taken || line.empty())) return;
  unfinished_owner_ = owner;
  unfinished_at_ = now;
  unfinished_ = fitting(line, columns() - 1);
  redraw();
}

void TerminalConsole::redraw() {
  const std::string& bottom = bar_.empty() ? unfinished_ : bar_;
  if (bottom == bottom_) return;
  const std::string clear = clearing();
  bottom_ = bottom;
  err_.push(clear + bottom_);
}

// The bytes that remove the bottom line and leave the cursor at its beginning.
std::string TerminalConsole::clearing() const {
  if (!dumb_) return kClearLine;
  return "\r" + std::string(static_cast<std::size_t>(width_of(bottom_)), ' ') + "\r";
}

void TerminalConsole::lose_standard_output(int error) {
  notice(error == EPIPE ? "nobody reads standard output any more: what the workers write there is "
                          "dropped, and the job goes on"
                        : std::string("cannot write standard output: ") + std::strerror(error) +
                              "; what the workers write there is shown no more");
}

void TerminalConsole::drop() {
  out_.drop();
  err_.drop();
}

}  // namespace dtrun::agent
