// A subcommand as data: parsing, help, man page, docs and completion read it, and the program runs it. Each
// stands in its own file below cmd/commands, and all of them in the list there (command_table.cc).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cmd/options/given.h"
#include "cmd/options/option_entry.h"
#include "proto/core/times.h"

namespace dtrun::cmd {

// A subcommand's command line as typed.
struct Invocation {
  GivenByName values;             // Values<the command's table> reads them
  std::string argument;           // empty: not given
  std::string second;             // of a command that takes two; empty: not given
  std::vector<std::string> more;  // the words after the second, if that may be repeated
  bool is_verbatim = false;       // of a command that takes a job: "--" came before its words
  const Environment& environment;
  const Times& times;

  // The second argument and all that follows: of a command whose second one may be repeated.
  std::vector<std::string> from_second_on() const {
    std::vector<std::string> words;
    if (!second.empty()) words.push_back(second);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

struct Command {
  const char* name;
  const char* summary;           // one line, no full stop
  const char* description = "";  // paragraphs with an empty line between them
  const char* argument = "";    // how help writes it, in brackets if it may be left out; empty: there is none
  const char* second = "";      // the same for a second one
  bool second_repeats = false;  // it may be given several times
  // The words behind the options are a job's, as those of the launcher are: a config with its overrides, a
  // script, or a program. They are `argument` and `more`.
  bool takes_job = false;
  std::span<const OptionEntry> options;
  bool rare = false;              // named alone in the help that fits a screen
  int (*run)(const Invocation&);  // the exit code of the contract

  bool takes_argument() const { return *argument != '\0'; }
  bool takes_second() const { return *second != '\0'; }
  bool needs_second() const { return takes_second() && *second != '['; }
  bool needs_argument() const { return takes_argument() && *argument != '['; }
};

using Commands = std::span<const Command* const>;

}  // namespace dtrun::cmd
