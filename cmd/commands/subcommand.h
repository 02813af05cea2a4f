// What dtrun's subcommands share: their few options, parsed with the same manners as the launcher's.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::cmd {

// Parses into what `app` is bound to; an option with underscores also has the spelling with dashes. The exit
// code if the command ends here: --help, or a wrong command line.
std::optional<int> parse_subcommand(CLI::App& app, const std::vector<std::string>& arguments);

// "--rdzv_id" as CLI11 wants it: both spellings.
std::string both_spellings(const std::string& name);

}  // namespace dtrun::cmd
