// Values of options that the user gave, and their sources.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "cmd/options/option_entry.h"

namespace dtrun::cmd {

using Environment = std::function<const char*(const char*)>;  // getenv
using Notice = std::function<void(const std::string& text)>;  // one line for the user

// A value and where it came from ("--nnodes", "DTRUN_NNODES", "launch.nnodes"), for messages.
struct Given {
  std::string value;
  std::string source;
};

using GivenByName = std::map<std::string, Given>;  // e.g. "nproc_per_node"; flags have "true" or "false"

// The options of `Table` as given. All of dtrun looks options up here.
template <const auto& Table>
struct Values {
  GivenByName values;

  std::optional<Given> given(NameIn<Table> name) const {
    const auto found = values.find(name.text());
    return found == values.end() ? std::nullopt : std::optional<Given>(found->second);
  }
  // Takes effect only if nothing else gives a value.
  void add_default(NameIn<Table> name, const Given& given) { values.try_emplace(name.text(), given); }
  bool has(NameIn<Table> name) const { return values.contains(name.text()); }
  bool flag(NameIn<Table> name) const { return has(name) && values.at(name.text()).value == "true"; }
};

}  // namespace dtrun::cmd
