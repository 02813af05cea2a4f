// A subcommand as data: parsing, help, man page, docs and completion read it, and the program runs it. Each
// stands in its own file in cmd/commands, and all of them in the list there (command_table.cc).
#pragma once

#include <span>
#include <string>

#include "cmd/options/given.h"
#include "cmd/options/option_entry.h"

namespace dtrun::cmd {

// A subcommand's command line as typed.
struct Invocation {
  GivenByName values;    // Values<the command's table> reads them
  std::string argument;  // empty: not given
  const Environment& environment;
};

struct Command {
  const char* name;
  const char* summary;           // one line, no full stop
  const char* description = "";  // paragraphs with an empty line between them
  const char* argument = "";  // how help writes it, in brackets if it may be left out; empty: there is none
  std::span<const OptionEntry> options;
  int (*run)(const Invocation&);  // the exit code of the contract

  bool takes_argument() const { return *argument != '\0'; }
  bool needs_argument() const { return takes_argument() && *argument != '['; }
};

using Commands = std::span<const Command* const>;

}  // namespace dtrun::cmd
