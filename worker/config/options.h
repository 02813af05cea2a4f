// The config's options as one table: parsing, checking, the canonical text and the JSON Schema all read it.
// A new option is one entry here, beside its field in config.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/config/config.h"
#include "worker/config/field.h"

namespace dtrun::worker {

struct Option {
  std::string_view pointer;  // "/train/seed"; one to three tokens
  FieldRef (*field)(JobConfig&);
  std::string_view description;
  bool required = false;
  // The types of the group (type_of) that have the option; empty: all. With other types it must not be given.
  std::vector<std::string_view> of = {};
  bool is_path = false;      // expanded_path() takes its value
  bool integer_too = false;  // a string option that also takes an integer, spelled as a string then
  bool list_too = false;     // a choice that also takes a list of one, as transformers writes it
  Bounds range = {};         // numbers
  Spelling spelling = {};

  Rule rule() const {
    return {.integer_too = integer_too, .list_too = list_too, .range = range, .spelling = spelling};
  }
};

std::span<const Option> config_options();

// "/train/seed" -> "train" and "seed"; "/output_dir" -> "" and "output_dir";
// "/train/lr_scheduler_kwargs/power"
// -> "train/lr_scheduler_kwargs" and "power".
std::string_view group_of(const Option& option);
std::string_view name_of(const Option& option);

// As an override is typed: "train.lr_scheduler_kwargs.power".
std::string path_of(const Option& option);

inline constexpr std::string_view kSchedulerKwargs = "train/lr_scheduler_kwargs";

// The option that decides which of a group's options apply: "/model/type" for "model".
std::string type_of(std::string_view group);

// Whether a config of this type of its group has the option.
bool applies(const Option& option, const JobConfig& config);

// Groups in the order of the table, each behind its parent; the top level's own options are no group.
std::vector<std::string_view> option_groups();

// The default as JSON; empty for an option without one.
std::string default_text(const Option& option);

// The value of an option of the launch group, as typed for its command-line option; nothing if `config` does
// not give it.
std::optional<std::string> launch_value(const Option& option, JobConfig& config);

// Of its field, for messages.
std::string allowed_values(const Option& option);

}  // namespace dtrun::worker
