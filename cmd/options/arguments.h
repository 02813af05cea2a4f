// Reads the words of a command line: finds dtrun's own words, the option of each, and the program's
// beginning. The launcher and its subcommands have the same rules: both spellings, abbreviations,
// "--name=value", a hint at the nearest name for a mistyped one, and the last of a repeated option counts.
// The code that uses a value interprets it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cmd/options/given.h"
#include "cmd/options/option_entry.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

struct OwnArguments {
  GivenByName values = {};  // of flags "true" or "false"
  std::size_t count = 0;    // of arguments
  bool short_help = false;  // -h was typed
};

// `command` ("dtrun", "dtrun store") is for messages. Its own arguments end before the first one that is
// neither an option nor an option's value: everything from there on belongs to the program, as with torchrun.
// An option that no argument gives is looked up as DTRUN_<NAME>, then as PET_<NAME>. That goes for all
// options that the launcher has, so a variable means the same to every subcommand. An empty variable is not
// set. A failure has EX_USAGE.
Result<OwnArguments> own_arguments(const std::string& command, std::span<const OptionEntry> options,
                                   const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace dtrun::cmd
