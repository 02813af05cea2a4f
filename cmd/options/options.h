// The launcher's command line as typed, in the order of precedence (flag, DTRUN_*, PET_*). arguments.h
// decides which words are dtrun's own, launch_plan.h interprets the values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cmd/options/given.h"
#include "cmd/options/option_table.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

struct Options : Values<kOptions> {
  std::vector<std::string> program;  // CONFIG.json | SCRIPT.py | PROGRAM and the words after it, without "--"
  std::optional<std::string> config_text = {};  // of the CONFIG.json in `program`, if it has been read
  bool program_is_verbatim = false;  // it came after "--": a name in .json is a program, not a config
  bool short_help = false;           // the help that is asked for is -h
};

// The program is the config of a built-in trainer.
bool names_config(const Options& options);

// `arguments` without argv[0]. Options behind a config are dtrun's, too: a config takes overrides alone. A
// failure has EX_USAGE.
Result<Options> parse_command_line(const std::vector<std::string>& arguments, const Environment& environment);
// The same of a subcommand that takes a job, with options of its own: `arguments` without its name.
Result<Options> parse_command_line(const std::string& command, std::span<const OptionEntry> options,
                                   const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace dtrun::cmd
