#include "cmd/manual/manual.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "cmd/options/option_table.h"
#include "proto/core/text.h"
#include "worker/config/options.h"

namespace dtrun::cmd {
namespace {

const PageItem kUses[] = {
    {"dtrun [options] CONFIG.json [key=value ...]", "The built-in trainer"},
    {"dtrun [options] SCRIPT.py [args...]", "A Python script (python3 -u)"},
    {"dtrun [options] -m MODULE [args...]", "A Python module (python3 -u -m)"},
    {"dtrun [options] -- PROGRAM [args...]", "Any program"},
};

constexpr char kSummary[] = "Start and supervise distributed training";

constexpr char kDescription[] =
    "An agent on each node joins the others through a coordinator, gets ranks, starts this "
    "node's workers with torchrun's environment, and supervises them: after a failure the job "
    "is restarted, up to --max_restarts times, or ended everywhere with one report of the root "
    "cause. With a config the workers are the built-in trainer's; key=value overrides an entry "
    "of the config (train.max_steps=10).";

constexpr char kExamples[] =
    "dtrun --standalone --nproc_per_node 2 configs/fashion_mnist_convnet.json\n"
    "dtrun configs/fashion_mnist_convnet.json train.num_train_epochs=1\n"
    "dtrun --nproc_per_node gpu --log_dir logs train.py --lr 0.1\n"
    "dtrun --nnodes 2 --rdzv_endpoint node0:29400 CONFIG.json   (on both nodes)\n";

const PageItem kExitCodes[] = {
    {"0", "every worker ended with 0"},
    {"a worker's", "the first failure's own, or 128+N for signal N, once restarts are used up"},
    {"64", "wrong command line"},
    {"65", "training diverged, or replicas do not have the same parameters"},
    {"66", "input named in the config (or the config) is missing or unreadable"},
    {"69", "no rendezvous: not enough nodes in time, coordinator not reachable"},
    {"70", "a bug in dtrun"},
    {"71", "a GPU or its driver failed, or a limit of the system (ulimit) leaves too little"},
    {"73", "a directory or file to write cannot be made, or is in use by another run"},
    {"74", "no room, or a broken disk, for the final model"},
    {"78", "invalid config, or a job that needs more memory than the machine has"},
    {"128+N", "dtrun itself was told to stop by signal N, after its workers were stopped (143 for SIGTERM)"},
};

constexpr char kConfigDescription[] =
    "A config is a JSON file that says what the built-in trainer computes. Keys without a default must be "
    "given. Entries can be overridden behind the config: `dtrun CONFIG.json train.max_steps=10 "
    "output_dir=runs/short`. Entries of `launch` are defaults of the command line's options of the same "
    "names. A wrong config is refused before anything starts, with all its faults named at once (exit code "
    "78).\n\n"
    "`dtrun help --format schema config` prints the same as a JSON Schema, for editors; a config may name "
    "its file under `$schema`. Installed, it is share/dtrun/configs/job.schema.json.";

constexpr char kConfigExample[] = R"({
  "output_dir": "runs/fashion_mnist",
  "model": { "type": "convnet" },
  "data": { "type": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist" },
  "train": { "num_train_epochs": 5, "learning_rate": 0.05, "lr_scheduler_type": "cosine" },
  "launch": { "nproc_per_node": 2 }
}
)";

template <typename Items>
std::vector<PageBlock> blocks(const Items& items) {
  return {std::begin(items), std::end(items)};
}

std::vector<std::string> paragraphs(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find("\n\n", at), text.size());
    all.push_back(text.substr(at, end - at));
    at = end + 2;
  }
  return all;
}

PageItem item_of(const OptionEntry& option, Detail detail) {
  std::string term = *option.short_name ? "-" + std::string(option.short_name) + ", " : "";
  term += "--" + std::string(option.name);
  if (!option.is_flag()) term += " " + std::string(option.placeholder);
  return {term, detail == Detail::kShort ? first_clause(option) : option.help};
}

std::vector<PageBlock> option_items(std::span<const OptionEntry> options, Detail detail) {
  std::vector<PageBlock> items;
  for (const OptionEntry& option : options) items.emplace_back(item_of(option, detail));
  return items;
}

// Without those that a command takes as the launcher has them, in its groups: its description says so.
std::vector<OptionEntry> own_options(const Command& command) {
  std::vector<OptionEntry> own;
  std::ranges::copy_if(command.options, std::back_inserter(own), [](const OptionEntry& option) {
    return *option.group == '\0' || std::string_view(option.group) == kTextGroup;
  });
  return own;
}

std::vector<Section> option_groups(std::span<const OptionEntry> options) {
  std::vector<Section> groups;
  for (const OptionEntry& option : options) {
    if (groups.empty() || groups.back().title != option.group)
      groups.push_back({.title = option.group, .level = 2});
    groups.back().blocks.emplace_back(item_of(option, Detail::kLong));
  }
  return groups;
}

Section command_list(Commands commands) {
  Section section{.title = "Commands"};
  for (const Command* command : commands)
    section.blocks.emplace_back(PageItem{command->name, command->summary});
  return section;
}

// "--nnodes, --lanes and --log_dir": the options that a config's launch section may give.
std::string launch_options() {
  std::vector<std::string> names;
  for (const worker::Option& key : worker::config_options()) {
    if (worker::group_of(key) == "launch") names.push_back("--" + std::string(worker::name_of(key)));
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

Section where_values_come_from() {
  return {.title = "Where an option's value comes from",
          .blocks = {Paragraph{
              "Every option is also read from DTRUN_<NAME>, then from PET_<NAME>; " + launch_options() +
              " then from the config's \"launch\". Both spellings work (--nproc_per_node, --nproc-per-node), "
              "and so does the beginning of a name that fits one option only (--nproc 2)."}}};
}

std::vector<std::string> description_of(const Command& command) { return paragraphs(command.description); }

PageItem use_of(const Command& command) {
  std::string term = "dtrun " + std::string(command.name) + " [options]";
  if (command.takes_argument()) term += " " + std::string(command.argument);
  if (command.takes_second()) term += " " + std::string(command.second);
  if (command.second_repeats) term += "...";
  return {term, ""};
}

Section reference_of(const Command& command) {
  Section section{.title = use_of(command).term, .level = 2};
  section.blocks.emplace_back(Paragraph{std::string(command.summary) + "."});
  for (std::string& text : description_of(command)) section.blocks.emplace_back(Paragraph{std::move(text)});
  for (PageBlock& item : option_items(own_options(command), Detail::kLong))
    section.blocks.push_back(std::move(item));
  return section;
}

Page short_launcher_page(Commands commands) {
  Page page{.name = "dtrun", .summary = kSummary, .usage = {std::begin(kUses), std::end(kUses)}};
  page.term_columns = 36;
  std::vector<const Command*> most_used;
  std::ranges::copy_if(commands, std::back_inserter(most_used), [](const Command* c) { return !c->rare; });
  page.sections.push_back(command_list(most_used));
  std::string others;
  for (const Command* command : commands)
    if (command->rare) others += (others.empty() ? "" : ", ") + std::string(command->name);
  page.sections.back().blocks.emplace_back(Paragraph{"And: " + others});
  Section options{.title = "Most used options"};
  for (const OptionEntry& option : kOptions) {
    if (option.common) options.blocks.emplace_back(item_of(option, Detail::kShort));
  }
  page.sections.push_back(options);
  page.sections.push_back(
      {.title = "", .blocks = {Paragraph{"More: dtrun --help, dtrun help COMMAND, dtrun help config"}}});
  return page;
}

// The text behind the description: the allowed values, and the default.
std::string text_of(const worker::Option& key) {
  std::string text;
  if (!key.of.empty()) {
    const std::string type = worker::type_of(worker::group_of(key));
    text = "Only for the " + type.substr(type.rfind('/') + 1) + " " + worker::quoted_list(key.of) + ". ";
  }
  text += key.description;
  if (const std::string allowed = worker::allowed_values(key); !allowed.empty())
    text += " Allowed: " + allowed + ".";
  if (key.required) return text + " Must be given.";
  const std::string otherwise = worker::default_text(key);
  return otherwise.empty() ? text : text + " [" + otherwise + "]";
}

bool is_word(std::string_view text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == text.npos;
}

}  // namespace

Page launcher_page(Commands commands, Detail detail) {
  if (detail == Detail::kShort) return short_launcher_page(commands);
  Page page{.name = "dtrun",
            .summary = kSummary,
            .usage = {std::begin(kUses), std::end(kUses)},
            .description = {kDescription}};
  if (detail == Detail::kLong) page.sections.push_back(command_list(commands));
  page.sections.push_back({.title = "Options"});
  for (Section& group : option_groups(kOptions)) page.sections.push_back(std::move(group));
  page.sections.push_back(where_values_come_from());
  if (detail == Detail::kReference) {
    page.sections.push_back({.title = "Commands"});
    for (const Command* command : commands) page.sections.push_back(reference_of(*command));
  }
  page.sections.push_back({.title = "Examples", .blocks = {Verbatim{kExamples}}});
  page.sections.push_back({.title = "Exit codes", .blocks = blocks(kExitCodes)});
  if (detail == Detail::kReference)
    page.sections.push_back({.title = "See also", .blocks = {Paragraph{"dtrun-config(5), docs/config.md"}}});
  return page;
}

Page command_page(const Command& command, Detail detail) {
  Page page{
      .name = "dtrun " + std::string(command.name), .summary = command.summary, .usage = {use_of(command)}};
  if (command.takes_job && detail != Detail::kShort)
    for (const char* const job : {" [options] SCRIPT.py [ARG]...", " [options] -- PROGRAM [ARG]..."})
      page.usage.push_back({page.name + job, ""});
  if (detail != Detail::kShort) page.description = description_of(command);
  page.sections.push_back({.title = "Options", .blocks = option_items(own_options(command), detail)});
  return page;
}

Page config_page() {
  Page page{.name = "dtrun-config",
            .man_section = 5,
            .summary = "The config of a job for dtrun's built-in trainer",
            .description = paragraphs(kConfigDescription)};
  for (const worker::Option& key : worker::config_options()) {
    const std::string path = worker::path_of(key);
    const std::string title = path.find('.') == path.npos ? "The top level" : path.substr(0, path.rfind('.'));
    if (page.sections.empty() || page.sections.back().title != title)
      page.sections.push_back({.title = title});
    page.sections.back().blocks.emplace_back(PageItem{path, text_of(key)});
  }
  page.sections.push_back({.title = "Example", .blocks = {Verbatim{kConfigExample}}});
  page.sections.push_back({.title = "See also", .blocks = {Paragraph{"dtrun(1), docs/cli.md"}}});
  return page;
}

std::string version() { return "dtrun " DTRUN_VERSION; }

std::string first_clause(const OptionEntry& option) {
  std::string_view help = option.help;
  for (const char* end : {". ", "; ", " ["}) help = help.substr(0, help.find(end));
  return std::string(help);
}

std::vector<std::string> choices(const std::string& placeholder, Commands commands) {
  std::vector<std::string> words;
  for (const std::string& part : split(
           placeholder.starts_with('[') ? placeholder.substr(1, placeholder.size() - 2) : placeholder, '|')) {
    if (is_word(part)) words.push_back(part);
    if (part != "COMMAND") continue;
    for (const Command* command : commands) words.emplace_back(command->name);
  }
  return words;
}

}  // namespace dtrun::cmd
