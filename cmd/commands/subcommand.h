// Running a subcommand: its command line with the launcher's manners, its help, and what becomes of a
// subcommand's name that is mistyped.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cmd/options/command.h"
#include "cmd/options/options.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// `arguments`: what follows the command's name; its argument may stand before, between and behind its
// options. The exit code.
int run_command(const Command& command, const std::vector<std::string>& arguments,
                const Environment& environment);

// EX_USAGE, with the right command, if what the launcher would run is no program at all but nearly one of
// `names`, or one of them behind options. A program that exists is never refused, nor one named with a path,
// with an ending, or behind "--", -m, --run_path or --no_python.
Status check_not_subcommand(const Options& options, std::span<const std::string> names,
                            const Environment& environment);

}  // namespace dtrun::cmd
