#include "cmd/commands/subcommand.h"

#include <cstdio>

#include "cmd/commands/answer.h"
#include "cmd/options/arguments.h"
#include "cmd/options/option_table.h"
#include "proto/core/exit_codes.h"

namespace dtrun::cmd {
namespace {

int refuse(const std::string& why) {
  std::fprintf(stderr, "dtrun: %s\n", why.c_str());
  return kExitUsage;
}

LongNames long_names(const CLI::App& app) {
  LongNames names{{}, {}, "dtrun " + app.get_name() + " --help"};
  for (const CLI::Option* option : app.get_options())
    names.all.push_back("--" + option->get_lnames().front());
  return names;
}

}  // namespace

std::string both_spellings(const std::string& name) {
  const std::string dashes = with_dashes(name);
  return dashes == name ? "--" + name : "--" + name + ",--" + dashes;
}

std::optional<int> parse_subcommand(CLI::App& app, const std::vector<std::string>& arguments) {
  app.set_help_flag("-h,--help", "Print this text and exit");
  for (CLI::Option* option : app.get_options({}))
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const Result<OwnArguments> own = own_arguments(app, long_names(app), arguments);
  if (!own.ok()) return refuse(own.status().message());
  try {
    app.parse(std::vector<std::string>(own.value().words));
  } catch (const CLI::CallForHelp&) {
    return answer(app.help("dtrun"));
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  }
  if (own.value().count == arguments.size()) return std::nullopt;
  const std::string name = "dtrun " + app.get_name();
  return refuse(name + " takes no argument \"" + arguments[own.value().count] + "\" (" + name + " --help)");
}

}  // namespace dtrun::cmd
