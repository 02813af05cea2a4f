#include "cmd/options/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cmd/options/option_table.h"
#include "proto/core/exit_codes.h"
#include "proto/core/home_path.h"
#include "proto/core/nearest.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

// The value of a flag as a bool; nothing if `text` is no such value.
std::optional<bool> flag_value(const std::string& text) {
  for (const char* yes : {"1", "true", "True"})
    if (text == yes) return true;
  for (const char* no : {"0", "false", "False"})
    if (text == no) return false;
  return std::nullopt;
}

// The long names that may be abbreviated, each in one spelling.
struct LongNames {
  std::vector<std::string> all;
  std::vector<std::string> first;  // an abbreviation of just one of these means that one, whatever `all` has
};

// An abbreviation that torchrun takes for one of its options means that option, whatever dtrun has besides.
LongNames long_names(std::span<const OptionEntry> options) {
  LongNames names;
  for (const OptionEntry& option : options) {
    names.all.push_back("--" + std::string(option.name));
    if (option.in_torchrun) names.first.push_back(names.all.back());
  }
  return names;
}

std::string cli_names(const OptionEntry& option) {
  const std::string name = option.name;
  std::string names = *option.short_name ? "-" + std::string(option.short_name) + "," : std::string();
  names += "--" + name;
  if (with_dashes(name) != name) names += ",--" + with_dashes(name);
  return names;
}

std::unique_ptr<CLI::App> make_app(std::span<const OptionEntry> options) {
  auto app = std::make_unique<CLI::App>();
  app->set_help_flag();  // the table has it
  for (const OptionEntry& entry : options) {
    CLI::Option* option = entry.is_flag() ? app->add_flag(cli_names(entry))
                                          : app->add_option(cli_names(entry))->type_name(entry.placeholder);
    option->multi_option_policy(entry.repeats ? CLI::MultiOptionPolicy::TakeAll
                                              : CLI::MultiOptionPolicy::TakeLast);
  }
  return app;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// The options by which other launchers (mpirun, accelerate, DeepSpeed, Horovod) say what dtrun calls
// otherwise.
struct NameElsewhere {
  std::string_view name, ours;
};
constexpr NameElsewhere kNamesElsewhere[] = {{"-np", "--nproc_per_node"},
                                             {"--np", "--nproc_per_node"},
                                             {"--num_gpus", "--nproc_per_node"},
                                             {"--num_proc", "--nproc_per_node"},
                                             {"--num_procs", "--nproc_per_node"},
                                             {"--num_processes", "--nproc_per_node"},
                                             {"--num_workers", "--nproc_per_node"},
                                             {"--num_nodes", "--nnodes"},
                                             {"--num_machines", "--nnodes"},
                                             {"--machine_rank", "--node_rank"},
                                             {"--main_process_ip", "--rdzv_endpoint"},
                                             {"--main_process_port", "--master_port"},
                                             {"--machinefile", "--hostfile"},
                                             {"--host", "--hosts"},
                                             {"--use_hostfile", "--hostfile"}};

std::string name_for(const std::string& typed) {
  std::string name = typed;
  std::replace(name.begin() + std::min<std::ptrdiff_t>(2, std::ssize(name)), name.end(), '-', '_');
  for (const NameElsewhere& one : kNamesElsewhere)
    if (one.name == name) return std::string(one.ours);
  return "";
}

// Those of `names` that start with `beginning`, in either spelling.
std::vector<std::string> begun_by(const std::string& beginning, std::vector<std::string> names) {
  std::erase_if(names, [&](const std::string& name) {
    return !name.starts_with(beginning) && !("--" + with_dashes(name.substr(2))).starts_with(beginning);
  });
  return names;
}

// An argument such as "--nnodes=2", "-m" or "-r3", parsed.
struct OptionWord {
  const CLI::Option* option = nullptr;
  std::string name;  // as CLI11 knows it
  std::optional<std::string> value;
};

// The words as CLI11 wants them: whole names, values apart.
class ArgumentReader {
 public:
  ArgumentReader(const std::string& command, const CLI::App& app, const LongNames& names,
                 const std::vector<std::string>& arguments)
      : command_(command), app_(app), names_(names), arguments_(arguments) {}

  // How many of the arguments are the command's own.
  Result<std::size_t> read() {
    while (count_ < arguments_.size()) {
      const std::string& argument = arguments_[count_];
      if (argument == "--" || argument.size() < 2 || argument[0] != '-') break;
      ASSIGN_OR_RETURN(OptionWord word, argument[1] == '-' ? long_word(argument) : short_word(argument));
      ++count_;
      RETURN_IF_ERROR(takes_value(*word.option) ? take_option(argument, word) : take_flag(argument, word));
    }
    return count_;
  }

  const std::vector<std::string>& words() const { return words_; }

 private:
  Status unknown_option(const std::string& name) const {
    const std::string ours = name_for(name);
    const bool is_here = std::ranges::find(names_.all, ours) != names_.all.end();
    const std::string nearest = is_here ? ours : nearest_name(name, names_.all);
    return Status(kExitUsage, "unknown option " + name +
                                  (nearest.empty() ? "" : ", did you mean " + nearest + "?") + " (" +
                                  command_ + " --help lists all)");
  }

  // The whole of a long name that may be abbreviated, as in Python's argparse.
  Result<std::string> whole_name(const std::string& name) const {
    if (app_.get_option_no_throw(name) != nullptr) return name;
    const auto first = begun_by(name, names_.first), all = begun_by(name, names_.all);
    if (first.size() == 1) return first.front();
    if (all.empty() || name == "--") return unknown_option(name);
    if (all.size() == 1) return all.front();
    return Status(kExitUsage, name + " is the beginning of several options: " + join(all));
  }

  Result<OptionWord> short_word(const std::string& argument) const {
    OptionWord word{app_.get_option_no_throw(argument.substr(0, 2)), argument.substr(0, 2), std::nullopt};
    if (argument.size() > 2) word.value = argument.substr(2);
    if (word.option == nullptr || (word.value && !takes_value(*word.option))) return unknown_option(argument);
    return word;
  }

  Result<OptionWord> long_word(const std::string& argument) const {
    const std::size_t equals = argument.find('=');
    ASSIGN_OR_RETURN(std::string name, whole_name(argument.substr(0, equals)));
    OptionWord word{app_.get_option_no_throw(name), name, std::nullopt};
    if (equals != std::string::npos) word.value = argument.substr(equals + 1);
    return word;
  }

  // CLI11 takes "--name=" for a name without a value, so the two go apart.
  Status take_option(const std::string& argument, const OptionWord& word) {
    std::string value = word.value.value_or("");
    if (!word.value) {
      if (count_ == arguments_.size() || arguments_[count_] == "--") {
        return Status(kExitUsage, argument + " needs a value (" + word.option->get_type_name() + ")");
      }
      value = arguments_[count_++];
    }
    words_.push_back(word.name);
    words_.push_back(value);
    return {};
  }

  Status take_flag(const std::string& argument, const OptionWord& word) {
    const std::optional<bool> on = word.value ? flag_value(*word.value) : true;
    if (!on) return Status(kExitUsage, argument + ": expected 1 or 0");
    words_.push_back(word.name + (*on ? "" : "=false"));
    return {};
  }

  const std::string& command_;
  const CLI::App& app_;
  const LongNames& names_;
  const std::vector<std::string>& arguments_;
  std::vector<std::string> words_;
  std::size_t count_ = 0;
};

bool launcher_has(std::string_view name) {
  return std::ranges::any_of(kOptions, [&](const OptionEntry& option) { return name == option.name; });
}

std::optional<Given> find_given(const OptionEntry& entry, const CLI::App& app,
                                const Environment& environment) {
  const std::string flag = "--" + std::string(entry.name);
  const CLI::Option* option = app.get_option(flag);
  if (option->count() > 0)
    return Given{entry.repeats ? join(option->results(), std::string(1, '\0')) : option->results().back(),
                 flag};
  if (entry.asks_for_text || !launcher_has(entry.name)) return std::nullopt;
  for (const char* prefix : kVariablePrefixes) {
    const std::string variable = prefix + in_capitals(entry.name);
    const char* value = environment(variable.c_str());
    if (value != nullptr && *value != '\0') return Given{value, variable};
  }
  return std::nullopt;
}

// A flag's value as "true" or "false", a path without a tilde; other options' as given.
Result<Given> checked(const OptionEntry& option, const Given& given, const Environment& environment) {
  if (option.is_path) {
    auto path = expanded_path(given.value, environment("HOME"));
    if (!path.ok()) return path.status().within(given.source + "=" + given.value);
    return Given{std::move(path).value(), given.source};
  }
  if (!option.is_flag()) return given;
  const std::optional<bool> on = flag_value(given.value);
  if (!on) return Status(kExitUsage, given.source + "=" + given.value + ": expected 1 or 0");
  return Given{*on ? "true" : "false", given.source};
}

}  // namespace

Result<OwnArguments> own_arguments(const std::string& command, std::span<const OptionEntry> options,
                                   const std::vector<std::string>& arguments,
                                   const Environment& environment) {
  const std::unique_ptr<CLI::App> app = make_app(options);
  const LongNames names = long_names(options);
  ArgumentReader reader(command, *app, names, arguments);
  ASSIGN_OR_RETURN(const std::size_t count, reader.read());
  try {
    app->parse(std::vector<std::string>(reader.words().rbegin(), reader.words().rend()));
  } catch (const CLI::ParseError& error) {
    return Status(kExitUsage, std::string(error.what()) + " (" + command + " --help lists all options)");
  }
  OwnArguments own{.count = count, .short_help = std::ranges::count(reader.words(), "-h") > 0};
  for (const OptionEntry& option : options) {
    const std::optional<Given> given = find_given(option, *app, environment);
    if (!given) continue;
    ASSIGN_OR_RETURN(own.values[option.name], checked(option, *given, environment));
  }
  return own;
}

}  // namespace dtrun::cmd
