#include "cmd/commands/status/status_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "cmd/commands/answer.h"

namespace dtrun::cmd {
namespace {

ScreenSize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_row, size.ws_col};
}

}  // namespace

StatusView::StatusView(bool json, bool terminal) : json_(json), terminal_(terminal && !json) {
  if (terminal_) std::setvbuf(stdout, nullptr, _IOFBF, std::size_t{1} << 16);  // one write a text: no flicker
}

int StatusView::show(const std::string& text, const std::string& lines) {
  if (json_) return answer(lines);
  return answer(terminal_ ? screen_.show(text, terminal_size()) : text);
}

int StatusView::show(const Status& failure) {
  if (terminal_)
    return answer(
        screen_.show("dtrun: " + palette_of_answers().error(failure.message()) + "\n", terminal_size()));
  (void)fail(failure);
  return kExitOk;
}

}  // namespace dtrun::cmd
