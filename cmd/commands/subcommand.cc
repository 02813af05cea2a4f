#include "cmd/commands/subcommand.h"

#include <sys/stat.h>

#include "cmd/commands/answer.h"
#include "cmd/manual/manual.h"
#include "cmd/options/arguments.h"
#include "cmd/options/values.h"
#include "proto/core/nearest.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

struct Parsed {
  OwnArguments own;
  std::string argument, second;
  std::vector<std::string> more;
  bool is_verbatim = false;
};

Result<Parsed> parse_job(const Command& command, const std::vector<std::string>& arguments,
                         const Environment& environment) {
  ASSIGN_OR_RETURN(Options job, parse_command_line("dtrun " + std::string(command.name), command.options,
                                                   arguments, environment));
  Parsed parsed{.own = {.values = std::move(job.values), .short_help = job.short_help},
                .argument = {},
                .second = {},
                .more = {},
                .is_verbatim = job.program_is_verbatim};
  if (job.program.empty()) return parsed;
  parsed.argument = job.program.front();
  parsed.more.assign(job.program.begin() + 1, job.program.end());
  return parsed;
}

// Options, the arguments that the command takes, with options between and behind them.
Result<Parsed> parse(const Command& command, std::vector<std::string> arguments,
                     const Environment& environment) {
  const std::string name = "dtrun " + std::string(command.name);
  Parsed parsed;
  Result<OwnArguments> own = own_arguments(name, command.options, arguments, environment);
  // Takes the first word that is no option, if there is one.
  const auto take = [&](std::string* taken) {
    if (!own.ok() || own.value().count == arguments.size()) return false;
    const auto argument = arguments.begin() + static_cast<std::ptrdiff_t>(own.value().count);
    *taken = *argument;
    arguments.erase(argument);
    own = own_arguments(name, command.options, arguments, environment);
    return true;
  };
  const bool second =
      command.takes_argument() && take(&parsed.argument) && command.takes_second() && take(&parsed.second);
  if (second && command.second_repeats) {
    for (std::string word; take(&word);) parsed.more.push_back(std::move(word));
  }
  if (!own.ok()) return own.status();
  parsed.own = std::move(own).value();
  if (parsed.own.count < arguments.size()) {
    return usage(name + " takes no " + (command.takes_argument() ? "further " : "") + "argument \"" +
                 arguments[parsed.own.count] + "\" (" + name + " --help)");
  }
  return parsed;
}

bool is_file(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && !S_ISDIR(found.st_mode);
}

// Looks `word` up as execvp does, but also finds a file that cannot be executed: the message about that is
// better.
bool exists(const std::string& word, const Environment& environment) {
  if (is_file(word)) return true;
  const char* path = environment("PATH");
  for (const std::string& folder : split(path != nullptr ? path : "/bin:/usr/bin", ':')) {
    if (is_file((folder.empty() ? "." : folder) + "/" + word)) return true;
  }
  return false;
}

}  // namespace

int run_command(const Command& command, const std::vector<std::string>& arguments,
                const Environment& environment, const Times& times) {
  Result<Parsed> parsed =
      command.takes_job ? parse_job(command, arguments, environment) : parse(command, arguments, environment);
  if (!parsed.ok()) return fail(parsed.status());
  const OwnArguments& own = parsed.value().own;
  if (const auto colour = own.values.find(kColorOption.name); colour != own.values.end()) {
    const Result<ColourMode> mode = parse_colour(colour->second);
    if (!mode.ok()) return fail(mode.status());
    set_colour(mode.value());
  }
  if (own.values.contains(kHelpOption.name)) {
    const Detail detail = own.short_help ? Detail::kShort : Detail::kLong;
    return answer(as_text(command_page(command, detail), terminal_columns()));
  }
  const bool lacks_first = command.needs_argument() && parsed.value().argument.empty();
  if (lacks_first || (command.needs_second() && parsed.value().second.empty())) {
    const std::string name = "dtrun " + std::string(command.name);
    const std::string order = std::string(command.argument) + (command.needs_second() ? " " : "") +
                              (command.needs_second() ? command.second : "");
    const std::string needed = std::string(lacks_first ? command.argument : command.second) +
                               (command.takes_job ? ", SCRIPT.py or -- PROGRAM" : "");
    return fail(
        usage(name + " needs " + needed + ": " + name + " [options] " + order + " (" + name + " --help)"));
  }
  return command.run({.values = own.values,
                      .argument = parsed.value().argument,
                      .second = parsed.value().second,
                      .more = parsed.value().more,
                      .is_verbatim = parsed.value().is_verbatim,
                      .environment = environment,
                      .times = times});
}

Status check_not_subcommand(const Options& options, std::span<const std::string> names,
                            const Environment& environment) {
  if (options.program.empty() || options.program_is_verbatim || options.flag("module") ||
      options.flag("run_path") || options.flag("no_python")) {
    return {};
  }
  const std::string& word = options.program[0];
  if (word.find_first_of("/.") != std::string::npos) return {};
  const std::string nearest = nearest_name(word, names);
  // A program that is missing is likelier than a slip in a command's first letter.
  if (nearest.empty() || nearest.front() != word.front() || exists(word, environment)) return {};
  if (nearest == word)
    return usage("a command comes before its options: dtrun " + word + " ... (dtrun help " + word + ")");
  return usage("no program " + word + ", did you mean dtrun " + nearest + "? (dtrun help lists all)");
}

}  // namespace dtrun::cmd
