// The words of a command line: which are dtrun's own, what each says, and where the program begins. One set
// of manners for the launcher and its subcommands: both spellings, abbreviations, "--name=value", the nearest
// name of a mistyped one, the last of a repeated one. What the values mean is their readers'.
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
// What no argument gives is looked up as DTRUN_<NAME>, then as PET_<NAME>, for all options that the launcher
// has, so a variable means the same to every subcommand; an empty variable is none. A failure has EX_USAGE.
Result<OwnArguments> own_arguments(const std::string& command, std::span<const OptionEntry> options,
                                   const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace dtrun::cmd
