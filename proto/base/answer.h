// Asks another program and reads its answer. The program may never answer, and one that waits for a broken
// driver cannot be ended; so the caller waits for a limited time.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace dtrun {

struct CommandAnswer {
  enum End { kAnswered, kNoDescriptors, kNotStarted, kSilent };  // kSilent: it was killed
  End end = kAnswered;
  int status = 0;    // waitpid's, if it answered
  std::string text;  // its standard output, if it answered
};

// Starts `command`, whose first word is a path or the name of a program on PATH, hands it `input` on its
// standard input, and waits for its answer for `limit` at most, or until it has said a mebibyte. Then the
// command is killed, with all that it started in its process group. Its standard error is dropped. Blocks.
CommandAnswer answer_of(const std::vector<std::string>& command, const std::string& input,
                        std::chrono::milliseconds limit);

}  // namespace dtrun
