// Cuts bytes into whole lines with bounded memory. Pure; knows neither the source of the bytes nor the target
// of the lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "proto/core/utf8.h"

namespace dtrun::agent {

// A longer line is handed on in pieces of this size, so that a stream without newlines costs no more memory.
inline constexpr std::size_t kMaxLine = 64u << 10;

class LineCutter {
 public:
  // Calls sink(line) for each line that `bytes` completes; the line comes without its newline. Binary safe.
  template <typename Sink>
  void push(std::string_view bytes, Sink&& sink) {
    while (!bytes.empty()) {
      const std::size_t newline = bytes.find('\n');
      const std::size_t room = kMaxLine - rest_.size();
      const std::size_t take = std::min(newline == std::string_view::npos ? bytes.size() : newline, room);
      const bool ends = take == newline;
      if (!ends && take < room) {
        rest_.append(bytes);
        return;
      }
      emit(bytes.substr(0, take), sink);
      bytes.remove_prefix(take + (ends ? 1 : 0));
    }
  }

  // The end of the stream: hands on a last line that had no newline.
  template <typename Sink>
  void finish(Sink&& sink) {
    if (!rest_.empty()) emit({}, sink);
  }

  // The beginning of the unfinished line.
  std::string_view rest() const { return rest_; }

 private:
  template <typename Sink>
  void emit(std::string_view last, Sink&& sink) {
    if (rest_.empty()) return sink(last);
    rest_.append(last);
    sink(std::string_view(rest_));
    rest_.clear();
  }

  std::string rest_;  // an unfinished line, shorter than kMaxLine
};

// The last lines of a stream, each cut to a length that people read.
class Tail {
 public:
  void push(std::string_view line) {
    static constexpr std::size_t kLines = 20, kLength = 400;
    if (lines_.size() == kLines) lines_.pop_front();
    line = overwritten(line);  // a progress bar's last state, not its first 400 bytes
    lines_.emplace_back(printable(line.substr(0, kLength)));
    if (line.size() > kLength) lines_.back() += "...";
  }
  // The newest; empty: none.
  std::string_view last() const { return lines_.empty() ? std::string_view() : lines_.back(); }
  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

}  // namespace dtrun::agent
