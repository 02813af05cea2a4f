// tcsh cannot tell where dtrun's options end. So it offers all names, values and files anywhere, and
// subcommands and files as the first word.
#include <set>

#include "cmd/manual/completion.h"
#include "cmd/manual/manual.h"
#include "cmd/options/option_table.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

// tcsh offers one kind of thing in a place, or a program's output.
constexpr char kFirstWord[] =
    R"tcsh( 'p@1@`sh -c '"'"'dtrun __complete "${COMMAND_LINE##* }" | sed 1d | cut -f1; ls -1dp "${COMMAND_LINE##* }"* 2>/dev/null'"'"'`@@')tcsh";

struct TcshWords {
  std::set<std::string> names;  // without dashes before them, of all commands
  std::string values;           // " 'n/--name/(words)/'" for each
};

void add_choices(const std::string& before, const std::vector<std::string>& choices, TcshWords* words) {
  if (!choices.empty()) words->values += " 'n/" + before + "/(" + join(choices, " ") + ")/'";
}

void add_options(std::span<const OptionEntry> options, Commands commands, TcshWords* words) {
  for (const OptionEntry& option : options) {
    for (const std::string& name : long_spellings(option)) {
      const bool is_new = words->names.insert(name.substr(2)).second;
      if (is_new) add_choices(name, choices(option.placeholder, commands), words);
    }
  }
}

}  // namespace

std::string tcsh_script(Commands commands) {
  TcshWords words;
  add_options(kOptions, commands, &words);
  for (const Command* command : commands) {
    add_options(command->options, commands, &words);
    if (std::string_view(command->argument) == "[RUN]")
      words.values +=
          " 'n@" + std::string(command->name) + "@`dtrun __complete " + command->name + " \"\" | sed 1d`@'";
    else if (command->takes_argument())
      add_choices(command->name, choices(command->argument, commands), &words);
  }
  return "# Completes dtrun's command line in tcsh. To keep it: dtrun completion tcsh >> ~/.tcshrc\n"
         "complete dtrun 'c/--/(" +
         join(std::vector<std::string>(words.names.begin(), words.names.end()), " ") + ")/'" + words.values +
         kFirstWord + " 'p/*/f/'\n";
}

}  // namespace dtrun::cmd
