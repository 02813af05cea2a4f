// Runs a subcommand: reads its command line by the launcher's rules, and prints its help. Also refuses a
// subcommand's name that is mistyped.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cmd/options/command.h"
#include "cmd/options/options.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// `arguments`: the words after the command's name; its argument may stand before, between and behind its
// options. Returns the exit code.
int run_command(const Command& command, const std::vector<std::string>& arguments,
                const Environment& environment, const Times& times);

// EX_USAGE, with the right command, if the launcher would run a word that is no program but nearly one of
// `names`, or is one of them behind options. Never refuses a program that exists, a word with a path or an
// ending, or one behind "--", -m, --run_path or --no_python.
Status check_not_subcommand(const Options& options, std::span<const std::string> names,
                            const Environment& environment);

}  // namespace dtrun::cmd
