// From text and overrides to a JobConfig. Faults are collected, so that one run shows them all.
#include <algorithm>
#include <map>
#include <set>

#include "proto/core/home_path.h"
#include "proto/core/nearest.h"
#include "proto/core/text.h"
#include "worker/config/check_together.h"
#include "worker/config/config.h"
#include "worker/config/faults.h"
#include "worker/config/options.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {

namespace {

using Json = nlohmann::ordered_json;

// Names that users bring from elsewhere, above all from transformers' TrainingArguments, each with its name
// here, or the reason why there is none.
struct Hint {
  std::string_view name, advice;
};
constexpr std::string_view kFormats = "leave it out: a job computes in fp32, or with bf16 in bfloat16";
constexpr std::string_view kNoCompiler = "leave it out: the kernels are compiled ahead of time";
constexpr std::string_view kOneEngine =
    "leave it out: every worker holds the whole model, and dtrun itself keeps them together";
constexpr std::string_view kOneBackend = "leave it out: the exchange of gradients needs no such setting";
constexpr std::string_view kDevice = "leave it out: the key device says what the job computes on";
constexpr std::string_view kNoLoaders =
    "leave it out: samples are in memory, and each lane takes its own from there";
constexpr std::string_view kSameBatch = "evaluation uses micro_batch_size";
constexpr std::string_view kMetrics = "leave it out: metrics are written to metrics.jsonl in output_dir";
constexpr std::string_view kNoHub = "leave it out: results stay in output_dir";
constexpr std::string_view kAlways = "leave it out: a job trains, and evaluates as eval_strategy says";
constexpr std::string_view kDeterministic = "leave it out: the same config gives the same bits anyway";
constexpr Hint kHints[] = {
    {"per_device_train_batch_size", "global_batch_size counts the samples of a step over all workers"},
    {"gradient_accumulation_steps", "global_batch_size and micro_batch_size decide it"},
    {"batch_size", "use global_batch_size"},
    {"train_batch_size", "use global_batch_size"},
    {"epochs", "use num_train_epochs"},
    {"lr", "use learning_rate"},
    {"optimizer", "use optim"},
    {"lr_scheduler", "use lr_scheduler_type"},
    {"scheduler", "use lr_scheduler_type"},
    {"evaluation_strategy", "use eval_strategy"},
    {"warmup", "use warmup_steps or warmup_ratio"},
    {"patience", "use early_stopping_patience"},
    {"label_smoothing", "use label_smoothing_factor"},
    {"drop_last", "use dataloader_drop_last"},
    {"fp16", kFormats},
    {"fp16_full_eval", kFormats},
    {"bf16_full_eval", "leave it out: evaluation computes as training does, and bf16 decides how"},
    {"tf32", kFormats},
    {"torch_compile", kNoCompiler},
    {"torch_compile_backend", kNoCompiler},
    {"torch_compile_mode", kNoCompiler},
    {"jit_mode_eval", kNoCompiler},
    {"deepspeed", kOneEngine},
    {"fsdp", kOneEngine},
    {"fsdp_config", kOneEngine},
    {"accelerator_config", kOneEngine},
    {"parallelism_config", kOneEngine},
    {"local_rank", kOneEngine},
    {"ddp_backend", kOneBackend},
    {"ddp_find_unused_parameters", kOneBackend},
    {"ddp_bucket_cap_mb", kOneBackend},
    {"ddp_broadcast_buffers", kOneBackend},
    {"ddp_timeout", kOneBackend},
    {"no_cuda", kDevice},
    {"use_cpu", kDevice},
    {"use_mps_device", kDevice},
    {"dataloader_num_workers", kNoLoaders},
    {"dataloader_pin_memory", kNoLoaders},
    {"dataloader_persistent_workers", kNoLoaders},
    {"dataloader_prefetch_factor", kNoLoaders},
    {"per_device_eval_batch_size", kSameBatch},
    {"eval_accumulation_steps", kSameBatch},
    {"auto_find_batch_size",
     "leave it out: a job's bits follow from its batch sizes, so none is chosen for it"},
    {"do_train", kAlways},
    {"do_eval", kAlways},
    {"do_predict", kAlways},
    {"run_name", kMetrics},
    {"logging_dir", kMetrics},
    {"logging_strategy", "leave it out: logging_steps decides it"},
    {"push_to_hub", kNoHub},
    {"hub_model_id", kNoHub},
    {"hub_token", kNoHub},
    {"full_determinism", kDeterministic},
    {"data_seed", "leave it out: seed decides the order of samples too"},
    {"overwrite_output_dir", "use resume_from_checkpoint, and another output_dir for another run"},
    {"save_safetensors", "leave it out: checkpoints are safetensors"},
    {"save_only_model", "leave it out: a checkpoint is all that a run needs to go on"},
    {"save_on_each_node", "leave it out: a node that does not share rank 0's disk keeps checkpoints too"},
};

std::string pointer_to(std::string_view group) { return group.empty() ? "" : "/" + std::string(group); }

// The names in a group ("" for the top level): its options, and the groups in it.
std::vector<std::string> names_in(std::string_view group) {
  const std::string prefix = pointer_to(group) + "/";
  std::vector<std::string> names;
  const auto add = [&](const std::string& pointer) {
    const std::string name = pointer.starts_with(prefix) ? pointer.substr(prefix.size()) : "";
    if (!name.empty() && name.find('/') == std::string::npos) names.push_back(name);
  };
  for (const Option& option : config_options()) add(std::string(option.pointer));
  for (const std::string_view inner : option_groups()) add(pointer_to(inner));
  return names;
}

// Options of every type come first: "seed" more likely means train's than that of one kind of data.
std::vector<const Option*> likeliest_options() {
  std::vector<const Option*> options;
  for (const Option& option : config_options()) options.push_back(&option);
  std::stable_partition(options.begin(), options.end(),
                        [](const Option* option) { return option->of.empty(); });
  return options;
}

// " (did you mean …?)" for a key that `group` does not have; empty if nothing is near.
std::string suggestion(std::string_view group, const std::string& key) {
  for (const Hint& hint : kHints) {
    if (hint.name == key) return "; " + std::string(hint.advice);
  }
  for (const Option* option : likeliest_options()) {
    if (name_of(*option) == key) return "; did you mean " + std::string(option->pointer) + "?";
  }
  const auto names = names_in(group);
  const std::string nearest = nearest_name(key, names);
  if (!nearest.empty()) return "; did you mean \"" + nearest + "\"?";
  return " (known here: " + join(names) + ")";
}

const Option* find_option(std::string_view pointer) {
  for (const Option& option : config_options()) {
    if (option.pointer == pointer) return &option;
  }
  return nullptr;
}

// ---- overrides

// The value of an override, right of its "=": JSON, or else a string. An option that takes only strings takes
// a number as a string too: output_dir=2024.
Json override_value(const std::string& text, const Option& option) {
  JobConfig scratch;
  const FieldRef field = option.field(scratch);
  const bool takes_boolean = std::holds_alternative<ResumeFrom*>(field);
  const bool wants_string = takes_boolean || std::holds_alternative<std::string*>(field) ||
                            std::holds_alternative<std::optional<std::string>*>(field) ||
                            std::holds_alternative<ChoiceRef>(field);
  const Result<StrictJson> parsed = parse_strict_json(text);
  if (!parsed.ok()) return text;
  const Json& value = parsed.value().value;
  const bool fits = value.is_string() || (takes_boolean && value.is_boolean());
  return wants_string && !fits ? Json(text) : value;
}

std::string dotted(std::string_view group) {
  std::string path(group);
  std::ranges::replace(path, '/', '.');
  return path;
}

// "train.num_train_epochs, train.max_steps, …"
std::string entries_of(std::string_view group) {
  std::string entries;
  for (const std::string& name : names_in(group)) {
    if (entries.size() > 40) return entries + ", …";
    entries += (entries.empty() ? "" : ", ") + dotted(group) + "." + name;
  }
  return entries;
}

std::string unknown_override(const std::string& path) {
  std::vector<std::string> paths;
  for (const Option* option : likeliest_options()) {
    paths.push_back(path_of(*option));
  }
  for (const std::string_view group : option_groups()) {
    if (path == dotted(group)) return ": it is a section; name an entry of it, as in " + entries_of(group);
  }
  for (const Hint& hint : kHints) {
    if (path == hint.name || path.ends_with("." + std::string(hint.name)))
      return "; " + std::string(hint.advice);
  }
  const std::string suffix = "." + path.substr(path.rfind('.') + 1);
  for (const std::string& known : paths) {
    if (known.ends_with(suffix) || known == suffix.substr(1)) return "; did you mean " + known + "?";
  }
  std::string nearest = nearest_name(path, paths);
  // A section's name in front is right, so only the part behind it may be mistyped.
  const std::size_t dot = path.rfind('.');
  for (const std::string_view group : option_groups()) {
    if (dot == std::string::npos || path.substr(0, dot) != dotted(group)) continue;
    nearest = nearest_name(path.substr(dot + 1), names_in(group));
    if (!nearest.empty()) nearest = dotted(group) + "." + nearest;
  }
  return nearest.empty() ? "; dtrun help config lists them all" : "; did you mean " + nearest + "?";
}

void apply_override(const std::string& text, Json* root, Faults* faults) {
  const std::string shown_text = "override " + printable(text);
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    faults->add_line(shown_text + ": not of the form key=value, e.g. train.max_steps=10");
    return;
  }
  const std::string path = text.substr(0, equals);
  std::string pointer = "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  const Option* option = find_option(pointer);
  if (!option) {
    faults->add_line(shown_text + ": there is no option " + printable(path) + unknown_override(path));
    return;
  }
  if (printable(text) != text) {
    faults->add_line(shown_text + ": the value has control characters or is not UTF-8");
    return;
  }
  const Json::json_pointer place(pointer);
  for (Json::json_pointer group = place.parent_pointer(); !group.empty(); group = group.parent_pointer()) {
    // A fault of the group itself, reported when the file is checked.
    if (root->contains(group) && !root->at(group).is_object()) return;
  }
  (*root)[place] = override_value(text.substr(equals + 1), *option);
  faults->blame(pointer, text);
}

// ---- the whole file

// "; \"cosine\" takes num_cycles" where all of a group's options belong to some types.
std::string taken_by_type(std::string_view group, const JobConfig& config) {
  if (group != kSchedulerKwargs) return "";
  std::string names;
  for (const Option& option : config_options()) {
    if (group_of(option) == group && applies(option, config))
      names += (names.empty() ? "" : ", ") + std::string(name_of(option));
  }
  return "; \"" + name_of(config.train.lr_scheduler_type) + "\" takes " + (names.empty() ? "none" : names);
}

void check_keys(const Json& object, std::string_view group, const JobConfig& config, Faults* faults) {
  const auto known = names_in(group);
  for (const auto& [key, value] : object.items()) {
    if (group.empty() && key == "$schema") continue;
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string pointer = pointer_to(group) + "/" + key;
    const std::string taken = taken_by_type(group, config);
    faults->add(pointer, "unknown key" + (taken.empty() ? suggestion(group, key) : taken));
  }
}

// REQUIRES: `config` has what `root` gives.
void check_shape(const Json& root, const JobConfig& config, Faults* faults) {
  check_keys(root, "", config, faults);
  for (std::string_view group : option_groups()) {
    const Json::json_pointer pointer(pointer_to(group));
    if (!root.contains(pointer)) continue;
    const Json& value = root.at(pointer);
    if (value.is_object()) {
      check_keys(value, group, config, faults);
    } else {
      faults->add(pointer.to_string(),
                  "found " + shown(value) + " (" + std::string(type_name(value)) + "), wanted an object");
    }
  }
}

// The option's value, null if the file does not give it.
const Json* value_of(const Json& root, const Option& option) {
  const Json::json_pointer pointer{std::string(option.pointer)};
  return root.contains(pointer) ? &root.at(pointer) : nullptr;
}

void expand_path(const Option& option, const char* home, Json* root, Faults* faults) {
  const std::string pointer(option.pointer);
  const Json::json_pointer at(pointer);
  if (!root->contains(at) || !root->at(at).is_string()) return;
  auto path = expanded_path(root->at(at).get_ref<const std::string&>(), home);
  if (path.ok())
    root->at(at) = std::move(path).value();
  else
    faults->add(pointer, shown(root->at(at)) + ": " + path.status().message());
}

void assign_all(const Json& root, JobConfig* config, Faults* faults) {
  for (const Option& option : config_options()) {
    const Json* value = value_of(root, option);
    const std::string pointer(option.pointer);
    const std::string type = type_of(group_of(option));  // comes first in its group
    const bool type_known = option.of.empty() || !faults->at(type);
    const bool belongs = type_known && applies(option, *config);
    if (!value) {
      if (option.required && belongs)
        faults->add(pointer, "is missing" + allowed_note(option.field(*config), option.rule()));
      continue;
    }
    if (type_known && !belongs) {
      faults->add(pointer, "is only for the " + type.substr(type.rfind('/') + 1) + " " +
                               quoted_list(option.of) + taken_by_type(group_of(option), *config));
      continue;
    }
    assign(*value, option.field(*config), option.rule(), pointer, faults);
  }
}

}  // namespace

Result<JobConfig> parse_config(std::string_view text, const std::string& source,
                               std::span<const std::string> overrides, const char* home) {
  if (text.size() > kLargestConfig) {
    return Status(kExitConfig, source + ": too long: a job config has at most " +
                                   std::to_string(kLargestConfig) + " bytes. Is it another file?");
  }
  Result<StrictJson> parsed = parse_strict_json(text);
  if (!parsed.ok()) return parsed.status().within(source);
  Json& root = parsed.value().value;
  if (!root.is_object()) {
    return Status(kExitConfig, source + ": found " + shown(root) + " (" + std::string(type_name(root)) +
                                   "), wanted an object: { \"output_dir\": …, \"model\": …, \"data\": … }");
  }

  Faults faults(source);
  for (const std::string& pointer : parsed.value().repeated) faults.add(pointer, "given twice; keep one");
  for (const std::string& text_of_override : overrides) apply_override(text_of_override, &root, &faults);
  for (const Option& option : config_options())
    if (option.is_path) expand_path(option, home, &root, &faults);
  JobConfig config;
  assign_all(root, &config, &faults);
  check_shape(root, config, &faults);
  check_together(config, &faults);
  if (!faults.none()) return faults.status();
  return config;
}

}  // namespace dtrun::worker
