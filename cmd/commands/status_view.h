// Shows the status of runs again and again, as a person or a program wants to read it.
#pragma once

#include <string>

#include "cmd/commands/screen.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

class StatusView {
 public:
  // On a terminal each text takes the place of the one before.
  StatusView(bool json, bool terminal);

  // `lines`: for programs, an object a line; `text`: for people. What could not be found out takes the text's
  // place on a terminal, and else goes to standard error. The exit code of standard output.
  int show(const std::string& text, const std::string& lines);
  int show(const Status& failure);

 private:
  const bool json_, terminal_;
  Screen screen_;
};

}  // namespace dtrun::cmd
