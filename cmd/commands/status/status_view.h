// Shows the status of runs again and again, as a person or a program wants to read it.
#pragma once

#include <string>

#include "cmd/commands/status/screen.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

class StatusView {
 public:
  // On a terminal each text takes the place of the one before.
  StatusView(bool json, bool terminal);

  // `lines`: for programs, an object a line; `text`: for people. A failure takes the text's place on a
  // terminal, and goes to standard error elsewhere. Returns the exit code: writing to standard output may
  // fail.
  int show(const std::string& text, const std::string& lines);
  int show(const Status& failure);

 private:
  const bool json_, terminal_;
  Screen screen_;
};

}  // namespace dtrun::cmd
