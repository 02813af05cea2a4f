// The command line as typed: CLI11 knows the options, this file the order of precedence (flag, DTRUN_*,
// PET_*). Which words are dtrun's own is told by arguments.h; what the values mean is launch_plan's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"

namespace dtrun::cmd {

// A value and where it came from ("--nnodes", "DTRUN_NNODES", "launch.nnodes"), for messages.
struct Given {
  std::string value;
  std::string source;
};

struct Options {
  std::map<std::string, Given> values;  // by torchrun's name, e.g. "nproc_per_node"; flags have "true"
  std::vector<std::string> program;     // CONFIG.json | SCRIPT.py | PROGRAM and what follows it, without "--"
  bool program_is_verbatim = false;     // it came after "--": a name in .json is a program, not a config

  bool has(const std::string& name) const { return values.count(name) != 0; }
  bool flag(const std::string& name) const { return has(name) && values.at(name).value == "true"; }
};

// Set instead of Options when the user asked for text (--help, --version, --print_completion).
struct TextAnswer {
  std::string text;
};

struct ParsedCommandLine {
  Options options;
  std::optional<TextAnswer> answer;
};

using Environment = std::function<const char*(const char*)>;  // getenv
using Notice = std::function<void(const std::string& text)>;  // one line for the user

// `arguments` without argv[0]; `columns` is the width of --help. A failure has EX_USAGE.
Result<ParsedCommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                             const Environment& environment, int columns = 80);

}  // namespace dtrun::cmd
