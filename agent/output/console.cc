#include "agent/output/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "agent/system/wall_clock.h"
#include "proto/base/framed_channel.h"

namespace dtrun::agent {
namespace {

constexpr std::size_t kCongested = 1u << 20;
constexpr std::size_t kDrained = 64u << 10;
// After a worker has been silent for this long, another worker's unfinished line may take its place.
constexpr auto kTurn = std::chrono::seconds(1);
constexpr char kClearLine[] = "\r\x1b[K";
constexpr std::size_t kLongestOutput = 1u << 20;  // in one frame

// Columns that the character beginning with `first` takes. From U+3000 on most are wide (Chinese, Japanese,
// Korean, emoji); a few that are not leave the line a little short.
int width_of(unsigned char first) {
  const bool continues = (first & 0xc0) == 0x80;
  return continues ? 0 : first >= 0xe3 ? 2 : 1;
}

// The part of a line that fits in `columns`, without bytes that move the cursor or change colours.
std::string fitting(std::string_view line, int columns) {
  std::string text;
  int used = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c == 0x1b && i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && (line[i] < 0x40 || line[i] > 0x7e)) ++i;
      continue;
    }
    if ((c < 0x20 && c != '\t') || c == 0x7f) continue;
    used += width_of(c);
    if (used > columns) break;
    text.push_back(c == '\t' ? ' ' : line[i]);
  }
  return text;
}

// A terminal without escape sequences, as an editor's shell window.
bool is_dumb() {
  const char* term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) == "dumb";
}

bool writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return poll(&entry, 1, 0) > 0;
}

// How much to write at once: a pipe with POLLOUT takes PIPE_BUF bytes without blocking, and takes them whole,
// so that lines of several agents on one pipe do not mix.
std::size_t portion(std::string_view text, bool regular) {
  if (regular || text.size() <= PIPE_BUF) return text.size();
  const std::size_t newline = text.rfind('\n', PIPE_BUF - 1);
  return newline == std::string_view::npos ? PIPE_BUF : newline + 1;
}

}  // namespace

Console::Console(Loop& loop, const OutputSpec& spec, std::function<void(bool)> congestion)
    : loop_(loop),
      remote_(spec.remote),
      congestion_(std::move(congestion)),
      out_{remote_ ? remote_->out_fd : STDOUT_FILENO},
      err_{STDERR_FILENO},
      palette_(remote_ ? remote_->colour
                       : wants_colour(spec.colour, std::getenv, isatty(STDERR_FILENO) == 1)),
      dumb_(is_dumb()) {
  for (Output* output : {&out_, &err_}) {
    struct stat info {};
    output->terminal = isatty(output->fd) == 1;
    output->regular = fstat(output->fd, &info) == 0 && S_ISREG(info.st_mode);
    if (output->terminal) open_anew(output);
  }
  struct stat out {
  }, err{};
  one_terminal_ = out_.terminal && err_.terminal && fstat(out_.fd, &out) == 0 && fstat(err_.fd, &err) == 0 &&
                  out.st_rdev == err.st_rdev;
}

// A terminal takes fewer bytes than a pipe when it says that it can be written, and a stopped one (Ctrl-S)
// none for hours: a write that blocks would be taken for our death. The mode of the descriptor that we were
// given is also that of the shell's.
void Console::open_anew(Output* output) {
  const std::string path = "/proc/self/fd/" + std::to_string(output->fd);
  output->own.reset(open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  if (output->own.open()) output->fd = output->own.get();
}

Console::~Console() {
  for (Output* output : {&out_, &err_}) {
    if (output->watched) loop_.forget(output->fd);
  }
}

int Console::columns() const {
  if (remote_) return remote_->columns;
  winsize size{};
  return ioctl(err_.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Console::send(const launch::FromHost& message) {
  if (!remote_) return;
  std::string frame = frame_of(message);
  if (remote_->in_fd < 0) {  // a detached job's file, whose reader merges it with those of other hosts
    launch::FromHost timed = message;
    timed.set_time(wall_seconds());
    frame = frame_of(timed);
  }
  push(&out_, frame);
}

void Console::write(Stream stream, std::string_view text) {
  if (remote_ && !has_room_for(text.size())) return;
  for (; remote_ && !text.empty(); text.remove_prefix(std::min(text.size(), kLongestOutput))) {
    launch::FromHost message;
    message.mutable_output()->set_to_stderr(stream == Stream::kErr);
    message.mutable_output()->set_text(std::string(text.substr(0, kLongestOutput)));
    send(message);
  }
  if (remote_) return;
  const bool above = !bottom_.empty() && shares_terminal(stream);
  if (above) push(&err_, clearing());
  push(stream == Stream::kOut ? &out_ : &err_, text);
  if (above) push(&err_, bottom_);
}

// Tells once that there is no more room. dtrun's own lines go on: they are few, and tell how the job ends.
bool Console::has_room_for(std::size_t output) {
  if (full_ || remote_->most_output == 0) return !full_;
  passed_on_ += output;
  full_ = passed_on_ > remote_->most_output;
  if (full_)
    notice("the workers have said " + std::to_string(remote_->most_output >> 20) +
           " MiB here, what they say from now on is not kept; --log_dir keeps all of it");
  return !full_;
}

void Console::notice(const std::string& text) { say(palette_.message(text)); }

void Console::error(const std::string& text) { say(palette_.error(text)); }

void Console::say(const std::string& text) { say(text, false); }

void Console::tell_job(const std::string& text) { say(text, true); }

void Console::say(const std::string& text, bool of_job) {
  if (remote_) {
    launch::FromHost message;
    message.mutable_said()->set_text(text);
    message.mutable_said()->set_of_job(of_job);
    return send(message);
  }
  const bool in_a_line = err_.mid_line && !err_.terminal;
  write(Stream::kErr, (in_a_line ? "\ndtrun: " : "dtrun: ") + text + "\n");
}

void Console::set_bar(const std::string& bar) {
  if (!has_terminal()) return;
  const std::string text = fitting(bar, columns() - 1);
  if (text == bar_) return;
  bar_ = text;
  if (!remote_) return redraw();
  launch::FromHost message;
  message.mutable_bar()->set_text(bar_);
  send(message);
}

void Console::set_unfinished(const void* owner, std::string_view line) {
  if (!err_.terminal) return;
  // Else several progress bars would replace each other with every update.
  const auto now = Loop::Clock::now();
  const bool taken = !unfinished_.empty() && now - unfinished_at_ < kTurn;
  if (owner != unfinished_owner_ && (taken || line.empty())) return;
  unfinished_owner_ = owner;
  unfinished_at_ = now;
  unfinished_ = fitting(line, columns() - 1);
  redraw();
}

void Console::redraw() {
  const std::string& bottom = bar_.empty() ? unfinished_ : bar_;
  if (bottom == bottom_) return;
  const std::string clear = clearing();
  bottom_ = bottom;
  push(&err_, clear + bottom_);
}

// The bytes that remove the bottom line and leave the cursor at its beginning.
std::string Console::clearing() const {
  if (!dumb_) return kClearLine;
  int width = 0;
  for (const char c : bottom_) width += width_of(static_cast<unsigned char>(c));
  return "\r" + std::string(static_cast<std::size_t>(width), ' ') + "\r";
}

void Console::push(Output* output, std::string_view text) {
  if (one_terminal_) output = &err_;
  if (output->broken) return;
  output->queue.append(text);
  if (!text.empty()) output->mid_line = text.back() != '\n';
  pump(output);
}

// Writes one portion; false if nothing more can be written now.
bool Console::write_some(Output* output) {
  if (!writable(output->fd)) return false;
  const std::string_view rest = std::string_view(output->queue).substr(output->written);
  const ssize_t n = ::write(output->fd, rest.data(), portion(rest, output->regular));
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) return false;
    output->broken = true;  // the reader is gone, or the disk full: the job goes on without our output
    if (output == &out_)
      notice(errno == EPIPE ? "nobody reads standard output any more: what the workers write there is "
                              "dropped, and the job goes on"
                            : std::string("cannot write standard output: ") + std::strerror(errno) +
                                  "; what the workers write there is shown no more");
    return false;
  }
  output->written += static_cast<std::size_t>(n);
  return true;
}

void Console::pump(Output* output) {
  while (output->written < output->queue.size() && write_some(output)) {
  }
  if (output->broken || output->written == output->queue.size()) {
    output->queue.clear();
    output->written = 0;
  } else if (output->written > kCongested) {
    output->queue.erase(0, output->written);
    output->written = 0;
  }
  const bool want = !output->queue.empty();
  if (want && !output->watched) {
    output->watched = loop_.watch(output->fd, EPOLLOUT, [this, output](std::uint32_t) { pump(output); });
  } else if (!want && output->watched) {
    loop_.forget(output->fd);
    output->watched = false;
  }
  update_congestion();
}

void Console::update_congestion() {
  const std::size_t queued = out_.queue.size() - out_.written + err_.queue.size() - err_.written;
  if (!congested_ && queued > kCongested) {
    congested_ = true;
    congestion_(true);
  } else if (congested_ && queued < kDrained) {
    congested_ = false;
    congestion_(false);
  }
}

void Console::drop() {
  for (Output* output : {&out_, &err_}) {
    if (output->queue.empty()) continue;
    output->broken = true;
    pump(output);
  }
}

}  // namespace dtrun::agent
