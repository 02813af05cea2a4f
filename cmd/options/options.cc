#include "cmd/options/options.h"

#include <algorithm>
#include <iterator>

#include "cmd/options/arguments.h"

namespace dtrun::cmd {

namespace {

Result<Options> parse_in_order(const std::string& command, std::span<const OptionEntry> table,
                               const std::vector<std::string>& arguments, const Environment& environment) {
  ASSIGN_OR_RETURN(OwnArguments own, own_arguments(command, table, arguments, environment));
  Options options;
  options.values = std::move(own.values);
  options.short_help = own.short_help;
  std::size_t program = own.count;
  if (program < arguments.size() && arguments[program] == "--") {
    options.program_is_verbatim = true;
    ++program;
  }
  options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(program), arguments.end());
  return options;
}

bool is_option(const std::string& word) { return word.size() > 1 && word.starts_with('-') && word != "--"; }

}  // namespace

bool names_config(const Options& options) {
  return !options.program_is_verbatim && !options.flag("no_python") && !options.flag("module") &&
         !options.flag("run_path") && !options.program.empty() && options.program[0].ends_with(".json");
}

Result<Options> parse_command_line(const std::vector<std::string>& arguments,
                                   const Environment& environment) {
  return parse_command_line("dtrun", kOptions, arguments, environment);
}

Result<Options> parse_command_line(const std::string& command, std::span<const OptionEntry> table,
                                   const std::vector<std::string>& arguments,
                                   const Environment& environment) {
  ASSIGN_OR_RETURN(Options options, parse_in_order(command, table, arguments, environment));
  if (!names_config(options) || std::ranges::none_of(options.program, is_option)) return options;
  std::vector<std::string> ordered(arguments.begin(), arguments.end() - std::ssize(options.program));
  std::vector<std::string> words, rest = std::move(options.program);
  while (!rest.empty()) {
    std::size_t count = 1;
    std::vector<std::string>& taker = is_option(rest.front()) ? ordered : words;
    if (is_option(rest.front())) {
      ASSIGN_OR_RETURN(OwnArguments own, own_arguments(command, table, rest, environment));
      count = own.count;
    }
    const auto end = rest.begin() + static_cast<std::ptrdiff_t>(count);
    taker.insert(taker.end(), rest.begin(), end);
    rest.erase(rest.begin(), end);
  }
  ordered.insert(ordered.end(), words.begin(), words.end());
  return parse_in_order(command, table, ordered, environment);
}

}  // namespace dtrun::cmd
