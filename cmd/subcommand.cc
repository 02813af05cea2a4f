#include "cmd/subcommand.h"

#include <algorithm>
#include <cstdio>

#include "cmd/option_table.h"
#include "proto/exit_codes.h"
#include "proto/nearest.h"

namespace dtrun::cmd {
namespace {

int refuse(const CLI::App& app, const std::string& why) {
  std::fprintf(stderr, "dtrun: %s (dtrun %s --help)\n", why.c_str(), app.get_name().c_str());
  return kExitUsage;
}

std::string unknown(const CLI::App& app, const std::string& word) {
  if (!word.starts_with("-")) return "dtrun " + app.get_name() + " takes no argument \"" + word + "\"";
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) names.push_back("--" + option->get_lnames().front());
  const std::string nearest = nearest_name(word.substr(0, word.find('=')), names);
  return "unknown option " + word + (nearest.empty() ? "" : ", did you mean " + nearest + "?");
}

}  // namespace

std::string both_spellings(const std::string& name) {
  const std::string dashes = with_dashes(name);
  return dashes == name ? "--" + name : "--" + name + ",--" + dashes;
}

std::optional<int> parse_subcommand(CLI::App& app, const std::vector<std::string>& arguments) {
  app.set_help_flag("-h,--help", "Print this text and exit");
  app.allow_extras();
  std::vector<std::string> last_first(arguments.rbegin(), arguments.rend());
  try {
    app.parse(last_first);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help("dtrun").c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    return refuse(app, error.what());
  }
  if (!app.remaining().empty()) return refuse(app, unknown(app, app.remaining().front()));
  return std::nullopt;
}

}  // namespace dtrun::cmd
