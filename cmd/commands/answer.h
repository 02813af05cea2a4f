// dtrun's own output: text that the user asked for (help, a plan, a status) goes to standard output, and the
// reason why dtrun cannot go on to standard error.
#pragma once

#include <chrono>
#include <string>

#include "proto/core/colour.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// Sets --color of this command line for all later output; auto until then. One thread.
void set_colour(ColourMode mode);
// For text that goes to standard output.
Palette palette_of_answers();

// Ends this process with EX_UNAVAILABLE and a line if it takes longer, but for the time in answer(): a name
// server, a coordinator or a library may let it wait for ever. For a command that answers once.
void answer_within(std::chrono::seconds limit);

// Prints the text and returns the exit code. A full disk is a failure like any other.
int answer(const std::string& text);

// Prints the message, each of its lines (a config may have several faults) behind "dtrun: ". Returns the exit
// code.
int fail(const Status& status);
void notice(const std::string& text);

// The width of the terminal on standard output; 80 if it is no terminal.
int terminal_columns();

}  // namespace dtrun::cmd
