// What dtrun says by itself: text that the user asked for (help, a plan, a status) to standard output, and
// why it cannot go on to standard error.
#pragma once

#include <string>

#include "agent/core/colour.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// --color of this command line, for all that follows; auto until then. One thread.
void set_colour(ColourMode mode);
// For text that goes to standard output.
Palette palette_of_answers();

// The exit code. A full disk there is a failure like any other.
int answer(const std::string& text);

// Prints the message, each of its lines (a config may have several faults) behind "dtrun: ". The exit code.
int fail(const Status& status);
void notice(const std::string& text);

// Of the terminal that standard output is; 80 if it is none.
int terminal_columns();

}  // namespace dtrun::cmd
