// dtrun's options as data: names, placeholders and the text of --help. Parsing reads the names (options.cc),
// help.cc lays the text out; what the values mean is launch_plan's.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dtrun::cmd {

struct OptionText {
  const char* name;  // torchrun's, with underscores; the spelling with dashes works too
  bool is_flag;
  const char* short_name;  // one letter, or empty
  const char* placeholder;
  const char* group;  // options of one group are neighbours
  const char* help;   // the default in brackets at the end
};

std::span<const OptionText> option_table();

// Whether torchrun has an option of this name as well.
bool is_torchruns(std::string_view name);

std::string with_dashes(std::string name);
std::string in_capitals(std::string name);

}  // namespace dtrun::cmd
