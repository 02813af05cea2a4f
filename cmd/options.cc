#include "cmd/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>

#include "proto/exit_codes.h"
#include "proto/nearest.h"

namespace dtrun::cmd {
namespace {

struct OptionText {
  const char* name;  // torchrun's
  bool is_flag;
  const char* short_name;
  const char* placeholder;
  const char* group;
  const char* help;
};

constexpr char kJob[] = "The job";
constexpr char kMeeting[] = "How nodes meet";
constexpr char kOutput[] = "Failures and output";

constexpr OptionText kOptions[] = {
    {"standalone", true, "", "", kJob,
     "One node: this process hosts the coordinator on a free loopback port. The default when --nnodes is 1 "
     "and "
     "no --rdzv_endpoint is given"},
    {"nnodes", false, "", "N|MIN:MAX", kJob, "Number of nodes, or its range [1]"},
    {"nproc_per_node", false, "", "N|auto|cpu|gpu", kJob,
     "Workers on this node; cpu: one per core, gpu: one per GPU, auto: gpu if there are any, else cpu [1]"},
    {"lanes", false, "", "N|auto", kJob,
     "Built-in trainer: microbatches that a worker runs at once; auto: its share of the cores [auto]"},
    {"node_rank", false, "", "N", kJob, "Rank of this node among the nodes [given by the coordinator]"},
    {"role", false, "", "NAME", kJob, "Name of the workers' role, shown before their output [default]"},
    {"module", true, "m", "", kJob, "Run the program as a Python module (python3 -u -m)"},
    {"no_python", true, "", "", kJob, "Run the program itself, even if its name ends in .py"},
    {"dry_run", true, "", "", kJob, "Print the resolved plan as JSON and start nothing"},
    {"rdzv_endpoint", false, "", "HOST[:PORT]", kMeeting,
     "Where the coordinator is; the agent on that host starts it. Port [29400]"},
    {"rdzv_backend", false, "", "NAME", kMeeting,
     "dtrun (c10d is another name of it); static: ranks by --node_rank; env: one worker, from RANK, "
     "WORLD_SIZE, "
     "MASTER_ADDR and MASTER_PORT [dtrun]"},
    {"rdzv_id", false, "", "ID", kMeeting, "Run id, the same on all nodes [default; standalone: random]"},
    {"rdzv_conf", false, "", "K=V,...", kMeeting,
     "join_timeout=600, last_call_timeout=5, keep_alive_interval=5, keep_alive_max_attempt=3 (seconds)"},
    {"local_addr", false, "", "ADDR", kMeeting,
     "Address of this node for its peers [the one that reaches the coordinator]"},
    {"max_restarts", false, "", "N", kOutput, "Restarts after worker failures, for the whole job [0]"},
    {"shutdown_timeout", false, "", "SECONDS", kOutput, "Grace between SIGTERM and SIGKILL for workers [30]"},
    {"log_dir", false, "", "DIR", kOutput,
     "Also write workers' output to DIR/RUN_ID/attempt_G/RANK/{stdout,stderr}.log [console only]"},
};

constexpr char kDescription[] =
    "dtrun starts and supervises distributed training.\n\n"
    "  dtrun [options] CONFIG.json [key=value ...]   the built-in trainer; key=value overrides a config "
    "entry\n"
    "  dtrun [options] SCRIPT.py [args...]           python3 -u SCRIPT.py on every worker\n"
    "  dtrun [options] -m MODULE [args...]           python3 -u -m MODULE on every worker\n"
    "  dtrun [options] -- PROGRAM [args...]          any program on every worker";

constexpr char kFooter[] =
    "Every option is also read from DTRUN_<NAME>, then PET_<NAME>, then the config's \"launch\"; both "
    "spellings\n"
    "work (--nproc_per_node, --nproc-per-node).\n\n"
    "Examples:\n"
    "  dtrun --standalone --nproc_per_node 2 configs/fashion_mnist_convnet.json\n"
    "  dtrun configs/fashion_mnist_convnet.json train.num_train_epochs=1 output_dir=runs/short\n"
    "  dtrun --nnodes 2 --rdzv_endpoint node0:29400 --nproc_per_node auto CONFIG.json   (on both nodes)\n\n"
    "Exit codes: 0 success; the first failing worker's own, or 128+N for signal N; 64 wrong command line;\n"
    "66 input missing; 69 no rendezvous; 70 a bug in dtrun; 77 refused; 78 invalid config; 128+N dtrun "
    "itself\n"
    "was stopped by signal N.";

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string upper(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

std::string cli_names(const OptionText& text) {
  const std::string name = text.name;
  std::string names = *text.short_name ? "-" + std::string(text.short_name) + "," : std::string();
  names += "--" + name;
  if (dashed(name) != name) names += ",--" + dashed(name);
  return names;
}

// One spelling per option (both work), and a usage line that tells where dtrun's options end.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: dtrun [options] CONFIG.json|SCRIPT.py|PROGRAM [arguments...]\n\n";
  }
  std::string make_option_name(const CLI::Option* option, bool) const override {
    const std::string names = option->get_name(false, true);
    const std::size_t dashed_spelling = names.find(",--", names.starts_with("--") ? 0 : names.find(',') + 1);
    return names.substr(0, dashed_spelling);
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    constexpr std::size_t kWidth = 74;
    std::istringstream words(option->get_description());
    std::string text, line;
    for (std::string word; words >> word;) {
      if (line.size() + 1 + word.size() > kWidth) {
        text += line + "\n";
        line.clear();
      }
      line += (line.empty() ? "" : " ") + word;
    }
    return text + line;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
};

std::unique_ptr<CLI::App> make_app() {
  auto app = std::make_unique<CLI::App>(kDescription, "dtrun");
  for (const OptionText& text : kOptions) {
    CLI::Option* option = text.is_flag
                              ? app->add_flag(cli_names(text), text.help)
                              : app->add_option(cli_names(text), text.help)->type_name(text.placeholder);
    option->group(text.group)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  app->set_help_flag("-h,--help", "Print this text and exit");
  app->set_version_flag("--version", "dtrun " DTRUN_VERSION);
  app->footer(kFooter);
  auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(34);
  app->formatter(formatter);
  return app;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names{"--help", "--version"};
  for (const OptionText& text : kOptions) names.push_back("--" + std::string(text.name));
  return names;
}

// The option that an argument such as "--nnodes=2" or "-m" names; null if there is none.
CLI::Option* option_of(const CLI::App& app, const std::string& argument) {
  return const_cast<CLI::App&>(app).get_option_no_throw(argument.substr(0, argument.find('=')));
}

Status unknown_option(const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  const std::string nearest = nearest_name(name, all_names());
  return Status(kExitUsage, "unknown option " + name +
                                (nearest.empty() ? "" : ", did you mean " + nearest + "?") +
                                " (dtrun --help lists all)");
}

// dtrun's own arguments end before the first one that is neither an option nor an option's value: everything
// from there on belongs to the program, as with torchrun.
Result<std::size_t> end_of_own_arguments(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::size_t i = 0;
  while (i < arguments.size()) {
    const std::string& argument = arguments[i];
    if (argument == "--" || argument.size() < 2 || argument[0] != '-') break;
    const CLI::Option* option = option_of(app, argument);
    if (option == nullptr) return unknown_option(argument);
    const bool takes_next = option->get_items_expected_max() > 0 && argument.find('=') == std::string::npos;
    if (takes_next && (i + 1 == arguments.size() || arguments[i + 1] == "--")) {
      return Status(kExitUsage, argument + " needs a value (" + option->get_type_name() + ")");
    }
    i += takes_next ? 2 : 1;
  }
  return i;
}

// A flag's value as "true" or "false"; other options' as given.
Result<Given> checked(const OptionText& text, const Given& given) {
  if (!text.is_flag) return given;
  for (const char* yes : {"1", "true", "True"}) {
    if (given.value == yes) return Given{"true", given.source};
  }
  for (const char* no : {"0", "false", "False"}) {
    if (given.value == no) return Given{"false", given.source};
  }
  return Status(kExitUsage, given.source + "=" + given.value + ": expected 1 or 0");
}

std::optional<Given> find_given(const OptionText& text, const CLI::App& app, const Environment& environment) {
  const std::string flag = "--" + std::string(text.name);
  const CLI::Option* option = app.get_option(flag);
  if (option->count() > 0) return Given{option->results().back(), flag};
  for (const char* prefix : {"DTRUN_", "PET_"}) {
    const std::string variable = prefix + upper(text.name);
    const char* value = environment(variable.c_str());
    if (value != nullptr && *value != '\0') return Given{value, variable};
  }
  return std::nullopt;
}

}  // namespace

Result<ParsedCommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                             const Environment& environment) {
  const std::unique_ptr<CLI::App> app = make_app();
  Result<std::size_t> end = end_of_own_arguments(*app, arguments);
  if (!end.ok()) return end.status();

  ParsedCommandLine parsed;
  // CLI11 takes its arguments last first.
  std::vector<std::string> own(arguments.begin(),
                               arguments.begin() + static_cast<std::ptrdiff_t>(end.value()));
  std::reverse(own.begin(), own.end());
  try {
    app->parse(own);
  } catch (const CLI::CallForHelp&) {
    parsed.answer = TextAnswer{app->help()};
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.answer = TextAnswer{std::string(version.what()) + "\n"};
    return parsed;
  } catch (const CLI::ParseError& error) {
    return Status(kExitUsage, std::string(error.what()) + " (dtrun --help lists all options)");
  }

  for (const OptionText& text : kOptions) {
    const std::optional<Given> given = find_given(text, *app, environment);
    if (!given) continue;
    Result<Given> value = checked(text, *given);
    if (!value.ok()) return value.status();
    parsed.options.values[text.name] = value.value();
  }

  std::size_t program = end.value();
  if (program < arguments.size() && arguments[program] == "--") {
    parsed.options.program_is_verbatim = true;
    ++program;
  }
  parsed.options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(program), arguments.end());
  return parsed;
}

}  // namespace dtrun::cmd
