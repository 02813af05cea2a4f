// An option as data, and names that are checked against a table of options while the program is compiled.
#pragma once

#include <string_view>

namespace dtrun::cmd {

struct OptionEntry {
  const char* name;              // with underscores; the spelling with dashes works too
  const char* short_name = "";   // one letter
  const char* placeholder = "";  // of its value; empty: a flag, on or off
  const char* help = "";  // up to the first "; ", ". " or " [" it stands alone in short lists; the default in
                          // brackets at the end
  const char* group = "";      // a heading; options of one group are neighbours
  bool in_torchrun = false;    // an abbreviation that torchrun takes for it means it here
  bool common = false;         // among the few that -h shows
  bool repeats = false;        // may be given several times; the values are joined by NUL characters
  bool is_path = false;        // expanded_path() takes its value
  bool asks_for_text = false;  // instead of a run; never read from the environment

  constexpr bool is_flag() const { return *placeholder == '\0'; }
};

// Every command has it.
inline constexpr char kTextGroup[] = "Text";
inline constexpr OptionEntry kHelpOption{.name = "help",
                                         .short_name = "h",
                                         .help = "Print this help and exit; -h: shorter",
                                         .group = kTextGroup,
                                         .in_torchrun = true,
                                         .asks_for_text = true};

inline constexpr OptionEntry kColorOption{
    .name = "color",
    .placeholder = "auto|always|never",
    .help =
        "Colour in dtrun's own output; auto: on a terminal, unless NO_COLOR is set or TERM is dumb, "
        "and anywhere if CLICOLOR_FORCE is set [auto]",
    .group = kTextGroup};

// The name of an option in `Table`, an array of OptionEntry. Any other name does not compile.
template <const auto& Table>
class NameIn {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is a name
  consteval NameIn(const char* name) : entry_(&entry_of(name)) {}
  constexpr const char* text() const { return entry_->name; }
  constexpr const OptionEntry& entry() const { return *entry_; }

 private:
  static consteval const OptionEntry& entry_of(std::string_view name) {
    for (const OptionEntry& entry : Table)
      if (name == entry.name) return entry;
    throw "no option of this table has this name";
  }

  const OptionEntry* entry_;
};

}  // namespace dtrun::cmd
