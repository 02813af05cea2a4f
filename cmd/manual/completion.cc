#include "cmd/manual/completion.h"

#include <algorithm>
#include <string_view>

#include "cmd/manual/manual.h"
#include "cmd/options/option_table.h"
#include "proto/core/text.h"
#include "proto/json/json.h"
#include "worker/config/config.h"

namespace dtrun::cmd {
namespace {

using Words = std::vector<std::string>;

// A config's overrides: "train.optim=sgd" for each value if the schema names them, else "train.seed=".
void add_overrides(const Json& schema, const std::string& path, Words* words) {
  for (const auto& [name, property] : schema.at("properties").items()) {
    const std::string key = path + name;
    if (property.contains("properties")) {
      add_overrides(property, key + ".", words);
    } else if (property.contains("enum")) {
      for (const Json& value : property["enum"]) words->push_back(key + "=" + value.get<std::string>());
    } else if (name[0] != '$') {
      words->push_back(key + "=");
    }
  }
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// "--nnodes=2", "-r3"
bool has_value(const std::string& word) {
  return word.starts_with("--") ? word.find('=') != word.npos : word.size() > 2;
}

// By its name or the beginning of one; null if there is none.
const OptionEntry* option_of(std::span<const OptionEntry> options, const std::string& word) {
  const OptionEntry* begun = nullptr;
  for (const OptionEntry& option : options) {
    if (word == "-" + std::string(option.short_name)) return &option;
    for (const std::string& name : long_spellings(option)) {
      if (name == word) return &option;
      if (begun == nullptr && word.size() > 2 && name.starts_with(word)) begun = &option;
    }
  }
  return begun;
}

class Completer {
 public:
  Completer(const Words& words, Commands commands, const std::function<Words()>& runs)
      : words_(words), commands_(commands), runs_(runs) {}

  Completion run() {
    const auto named = std::ranges::find_if(
        commands_, [&](const Command* command) { return words_.size() > 1 && words_[0] == command->name; });
    if (named != commands_.end()) command_ = *named;
    const OptionEntry* const due = read();
    if (program_ && *program_ + 1 < words_.size()) {
      const bool config = words_[*program_].ends_with(".json");
      config ? add_overrides_of_config() : static_cast<void>(completion_.program = program_);
    } else if (due != nullptr) {
      add_values(due->placeholder, "");
    } else if (!program_ && typed().starts_with('-')) {
      add_options();
    } else if (takes_job()) {
      add_programs();
    } else if (std::string_view(command_->argument) == "[RUN]") {
      for (const std::string& run : runs_()) add(run);
    } else {
      add_values(command_->argument, "");
    }
    return std::move(completion_);
  }

 private:
  const std::string& typed() const { return words_.back(); }
  bool takes_job() const { return command_ == nullptr || command_->takes_job; }
  std::span<const OptionEntry> options() const {
    return command_ != nullptr ? command_->options : std::span<const OptionEntry>(kOptions);
  }
  void add(const std::string& word, const std::string& text = "") {
    if (word.starts_with(typed())) completion_.items.push_back({word, text});
  }

  // Reads the words in front of the typed one; returns the option whose value is typed.
  const OptionEntry* read() {
    const OptionEntry* due = nullptr;
    for (std::size_t i = command_ != nullptr ? 1 : 0; i + 1 < words_.size(); ++i) {
      const std::string& word = words_[i];
      if (due != nullptr) {
        due = nullptr;
      } else if (takes_job() && (word == "--" || !is_option(word))) {
        program_ = word == "--" ? i + 1 : i;
        return nullptr;
      } else if (is_option(word) && !has_value(word)) {
        due = option_of(options(), word);
        if (due != nullptr && due->is_flag()) due = nullptr;
      }
    }
    return due;
  }

  void add_overrides_of_config() {
    Words all;
    add_overrides(parse_json(worker::config_json_schema()), "", &all);
    for (const std::string& word : all) add(word);
  }

  // `before`: "--name=", where the value is a part of the word.
  void add_values(const std::string& placeholder, const std::string& before) {
    const Words words = choices(placeholder, commands_);
    for (const std::string& word : words) add(before + word);
    if (!words.empty()) return;
    if (placeholder == "DIR") completion_.actions = {"directory"};
    if (placeholder == "FILE" || placeholder.ends_with(".json")) completion_.actions = {"file"};
    if (placeholder.starts_with("HOST")) completion_.actions = {"hostname"};
  }

  // In one spelling, and in the other once that is begun; behind "--name=" its values.
  void add_options() {
    if (const std::size_t equals = typed().find('='); equals != std::string::npos) {
      const OptionEntry* const option = option_of(options(), typed().substr(0, equals));
      if (option != nullptr) add_values(option->placeholder, typed().substr(0, equals + 1));
      return;
    }
    for (const OptionEntry& option : options()) {
      add(long_spellings(option).front(), first_clause(option));
      if (*option.short_name) add("-" + std::string(option.short_name), first_clause(option));
    }
    if (!completion_.items.empty()) return;
    for (const OptionEntry& option : options()) add(long_spellings(option).back(), first_clause(option));
  }

  // A subcommand, a program behind "--", or a file.
  void add_programs() {
    if (words_.size() == 1)
      for (const Command* command : commands_) add(command->name, command->summary);
    if (program_) completion_.actions.emplace_back("command");
    completion_.actions.emplace_back("file");
  }

  const Words& words_;
  const Commands commands_;
  const std::function<Words()>& runs_;
  const Command* command_ = nullptr;
  std::optional<std::size_t> program_;
  Completion completion_;
};

}  // namespace

std::vector<std::string> long_spellings(const OptionEntry& option) {
  const std::string name = option.name;
  if (with_dashes(name) == name) return {"--" + name};
  return {"--" + name, "--" + with_dashes(name)};
}

Completion complete(const Words& words, Commands commands, const std::function<Words()>& runs) {
  return words.empty() ? Completion() : Completer(words, commands, runs).run();
}

std::string as_lines(const Completion& completion) {
  std::string lines =
      completion.program ? "program " + std::to_string(*completion.program) : join(completion.actions, " ");
  lines += '\n';
  for (const auto& [word, text] : completion.items) lines += word + (text.empty() ? "" : '\t' + text) + '\n';
  return lines;
}

}  // namespace dtrun::cmd
