#include "cmd/commands/answer.h"
#include "cmd/commands/command_table.h"
#include "cmd/commands/commands.h"
#include "cmd/manual/manual.h"
#include "cmd/options/values.h"
#include "proto/core/nearest.h"
#include "worker/config/config.h"

namespace dtrun::cmd {
namespace {

constexpr char kConfigTopic[] = "config";

constexpr OptionEntry kOptionsOfHelp[] = {
    {.name = "format",
     .placeholder = "text|man|markdown|schema",
     .help = "text, for a terminal; man: the source of a man page, the whole manual if no command is named; "
             "markdown: the same for docs; schema: a config's JSON Schema, for editors [text]",
     .group = kTextGroup},
    kColorOption,
    kHelpOption};

Result<Page> page_of(const std::string& topic, Detail of_launcher) {
  if (topic.empty() || topic == "dtrun") return launcher_page(commands(), of_launcher);
  if (topic == kConfigTopic) return config_page();
  if (const Command* command = find_command(topic)) return command_page(*command, Detail::kLong);
  std::vector<std::string> known = command_names();
  known.emplace_back(kConfigTopic);
  const std::string nearest = nearest_name(topic, known);
  return usage("no help on " + topic + (nearest.empty() ? "" : ", did you mean " + nearest + "?") +
               " (dtrun help lists all)");
}

int run_help(const Invocation& invocation) {
  const Values<kOptionsOfHelp> options{invocation.values};
  const auto format = options.given("format");
  const bool is_text = !format || format->value == "text";
  if (format && format->value == "schema") {
    if (invocation.argument != kConfigTopic)
      return fail(usage(quoted(*format) + ": only a config has one: dtrun help --format schema config"));
    return answer(worker::config_json_schema());
  }
  Result<Page> page = page_of(invocation.argument, is_text ? Detail::kShort : Detail::kReference);
  if (!page.ok()) return fail(page.status());
  if (is_text) return answer(as_text(page.value(), terminal_columns()));
  if (format->value == "man") return answer(as_man(page.value(), version()));
  if (format->value == "markdown") return answer(as_markdown(page.value()));
  return fail(usage(quoted(*format) + ": expected text, man, markdown or schema"));
}

}  // namespace

constinit const Command kHelpCommand{
    .name = "help",
    .summary = "Show help for dtrun, one of its commands, or a config",
    .description =
        "`dtrun help COMMAND` is `dtrun COMMAND --help`; `dtrun help config` names a config's keys with "
        "their defaults.",
    .argument = "[COMMAND|config]",
    .options = kOptionsOfHelp,
    .rare = true,
    .run = run_help};

}  // namespace dtrun::cmd
