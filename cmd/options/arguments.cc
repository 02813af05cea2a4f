#include "cmd/options/arguments.h"

#include <algorithm>

#include "cmd/options/option_table.h"
#include "proto/core/exit_codes.h"
#include "proto/core/nearest.h"

namespace dtrun::cmd {
namespace {

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// Those of `names` that `beginning` begins, in either spelling.
std::vector<std::string> begun_by(const std::string& beginning, std::vector<std::string> names) {
  std::erase_if(names, [&](const std::string& name) {
    return !name.starts_with(beginning) && !("--" + with_dashes(name.substr(2))).starts_with(beginning);
  });
  return names;
}

// What an argument such as "--nnodes=2", "-m" or "-r3" says.
struct Word {
  const CLI::Option* option = nullptr;
  std::string name;  // as CLI11 knows it
  std::optional<std::string> value;
};

class Reader {
 public:
  Reader(const CLI::App& app, const LongNames& names, const std::vector<std::string>& arguments)
      : app_(app), names_(names), arguments_(arguments) {}

  Result<OwnArguments> read() {
    while (own_.count < arguments_.size()) {
      const std::string& argument = arguments_[own_.count];
      if (argument == "--" || argument.size() < 2 || argument[0] != '-') break;
      Result<Word> word = argument[1] == '-' ? long_word(argument) : short_word(argument);
      if (!word.ok()) return word.status();
      ++own_.count;
      const Status status = takes_value(*word.value().option) ? take_option(argument, word.value())
                                                              : take_flag(argument, word.value());
      if (!status.ok()) return status;
    }
    std::reverse(own_.words.begin(), own_.words.end());
    return own_;
  }

 private:
  Status unknown_option(const std::string& name) const {
    const std::string nearest = nearest_name(name, names_.all);
    return Status(kExitUsage, "unknown option " + name +
                                  (nearest.empty() ? "" : ", did you mean " + nearest + "?") + " (" +
                                  names_.help + " lists all)");
  }

  // The whole of a long name that may be abbreviated, as in Python's argparse.
  Result<std::string> whole_name(const std::string& name) const {
    if (app_.get_option_no_throw(name) != nullptr) return name;
    const auto first = begun_by(name, names_.first), all = begun_by(name, names_.all);
    if (first.size() == 1) return first.front();
    if (all.empty() || name == "--") return unknown_option(name);
    if (all.size() == 1) return all.front();
    std::string candidates;
    for (const std::string& candidate : all) candidates += (candidates.empty() ? "" : ", ") + candidate;
    return Status(kExitUsage, name + " is the beginning of several options: " + candidates);
  }

  Result<Word> short_word(const std::string& argument) const {
    Word word{app_.get_option_no_throw(argument.substr(0, 2)), argument.substr(0, 2), std::nullopt};
    if (argument.size() > 2) word.value = argument.substr(2);
    if (word.option == nullptr || (word.value && !takes_value(*word.option))) return unknown_option(argument);
    return word;
  }

  Result<Word> long_word(const std::string& argument) const {
    const std::size_t equals = argument.find('=');
    Result<std::string> name = whole_name(argument.substr(0, equals));
    if (!name.ok()) return name.status();
    Word word{app_.get_option_no_throw(name.value()), name.value(), std::nullopt};
    if (equals != std::string::npos) word.value = argument.substr(equals + 1);
    return word;
  }

  // CLI11 takes "--name=" for a name without a value, so the two go apart.
  Status take_option(const std::string& argument, const Word& word) {
    std::string value = word.value.value_or("");
    if (!word.value) {
      if (own_.count == arguments_.size() || arguments_[own_.count] == "--") {
        return Status(kExitUsage, argument + " needs a value (" + word.option->get_type_name() + ")");
      }
      value = arguments_[own_.count++];
    }
    own_.words.push_back(word.name);
    own_.words.push_back(value);
    return {};
  }

  Status take_flag(const std::string& argument, const Word& word) {
    const std::optional<bool> on = word.value ? flag_value(*word.value) : true;
    if (!on) return Status(kExitUsage, argument + ": expected 1 or 0");
    own_.words.push_back(word.name + (*on ? "" : "=false"));
    return {};
  }

  const CLI::App& app_;
  const LongNames& names_;
  const std::vector<std::string>& arguments_;
  OwnArguments own_;
};

}  // namespace

Result<OwnArguments> own_arguments(const CLI::App& app, const LongNames& names,
                                   const std::vector<std::string>& arguments) {
  return Reader(app, names, arguments).read();
}

std::optional<bool> flag_value(const std::string& text) {
  for (const char* yes : {"1", "true", "True"})
    if (text == yes) return true;
  for (const char* no : {"0", "false", "False"})
    if (text == no) return false;
  return std::nullopt;
}

}  // namespace dtrun::cmd
