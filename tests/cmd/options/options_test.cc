#include "cmd/options/options.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "cmd/options/option_table.h"
#include "worker/config/options.h"

namespace dtrun::options_test {

using namespace dtrun::cmd;

namespace {

Result<Options> parse(const std::vector<std::string>& arguments,
                      const std::map<std::string, std::string>& variables = {}) {
  return parse_command_line(arguments, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string value(const Result<Options>& parsed, const std::string& name) {
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  const auto& values = parsed.value().values;
  return values.count(name) ? values.at(name).value + " from " + values.at(name).source : "absent";
}

std::string error(const Result<Options>& parsed) {
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.status().exit_code() == kExitUsage);
  return parsed.status().message();
}

}  // namespace

TEST_CASE("both spellings of an option work, with '=' and with a space") {
  for (const auto& arguments : {std::vector<std::string>{"--nproc_per_node", "2", "x"},
                                std::vector<std::string>{"--nproc-per-node", "2", "x"},
                                std::vector<std::string>{"--nproc_per_node=2", "x"},
                                std::vector<std::string>{"--nproc-per-node=2", "x"}}) {
    CHECK(value(parse(arguments), "nproc_per_node") == "2 from --nproc_per_node");
  }
}

TEST_CASE("options behind a config are dtrun's, those behind a program are the program's") {
  using Words = std::vector<std::string>;
  const auto parsed = parse({"--nnodes", "2", "c.json", "a=1", "--nproc_per_node", "4", "b=-2", "--dry-run"});
  CHECK(value(parsed, "nproc_per_node") == "4 from --nproc_per_node");
  CHECK(value(parsed, "nnodes") == "2 from --nnodes");
  CHECK(parsed.value().flag("dry_run"));
  CHECK(parsed.value().program == Words{"c.json", "a=1", "b=-2"});
  CHECK(value(parse({"--nnodes", "2", "c.json", "--nnodes=3"}), "nnodes") == "3 from --nnodes");
  CHECK(error(parse({"c.json", "--nproc_per_nide", "4"})).find("--nproc_per_node") != std::string::npos);
  CHECK(error(parse({"c.json", "--nnodes"})).find("needs a value") != std::string::npos);
  CHECK(parse({"x.py", "--nnodes", "2"}).value().program == Words{"x.py", "--nnodes", "2"});
  CHECK(parse({"--", "c.json", "--nnodes", "2"}).value().program == Words{"c.json", "--nnodes", "2"});
  CHECK(parse({"--no_python", "c.json", "--nnodes", "2"}).value().program ==
        Words{"c.json", "--nnodes", "2"});
  CHECK(parse({"c.json", "--", "x"}).value().program == Words{"c.json", "--", "x"});
}

TEST_CASE("a flag wins over DTRUN_*, which wins over PET_*") {
  CHECK(value(parse({"--nnodes", "2", "x"}, {{"DTRUN_NNODES", "3"}, {"PET_NNODES", "4"}}), "nnodes") ==
        "2 from --nnodes");
  CHECK(value(parse({"x"}, {{"DTRUN_NNODES", "3"}, {"PET_NNODES", "4"}}), "nnodes") == "3 from DTRUN_NNODES");
  CHECK(value(parse({"x"}, {{"PET_NNODES", "4"}}), "nnodes") == "4 from PET_NNODES");
  CHECK(value(parse({"x"}), "nnodes") == "absent");
}

TEST_CASE("the last of a repeated option counts") {
  CHECK(value(parse({"--nnodes", "2", "--nnodes", "3", "x"}), "nnodes") == "3 from --nnodes");
}

TEST_CASE("everything from the program on belongs to the program, options included") {
  const auto parsed = parse({"--standalone", "train.py", "--nnodes", "5", "a=b"});
  REQUIRE(parsed.ok());
  CHECK(parsed.value().program == std::vector<std::string>{"train.py", "--nnodes", "5", "a=b"});
  CHECK_FALSE(parsed.value().has("nnodes"));
  CHECK_FALSE(parsed.value().program_is_verbatim);
}

TEST_CASE("after -- everything belongs to the program, and a config is none") {
  const auto parsed = parse({"--", "train.json", "--", "x"});
  REQUIRE(parsed.ok());
  CHECK(parsed.value().program == std::vector<std::string>{"train.json", "--", "x"});
  CHECK(parsed.value().program_is_verbatim);
}

TEST_CASE("an unknown option suggests the nearest one") {
  CHECK(error(parse({"--nprok_per_nod", "2", "x"})).find("did you mean --nproc_per_node?") !=
        std::string::npos);
  CHECK(error(parse({"--nproc-per-nodes=2", "x"})).find("did you mean --nproc_per_node?") !=
        std::string::npos);
  CHECK(error(parse({"--zzzzzzzzzzzzzzzz"})).find("did you mean") == std::string::npos);
}

TEST_CASE("the beginning of a name that fits one option is that option, as in torchrun's argparse") {
  for (const auto& pair :
       std::vector<std::pair<std::string, std::string>>{{"--nproc", "nproc_per_node"},
                                                        {"--nproc-per", "nproc_per_node"},
                                                        {"--nproc_per_nod", "nproc_per_node"},
                                                        {"--rdzv_back", "rdzv_backend"},
                                                        {"--max", "max_restarts"},
                                                        {"--master-p", "master_port"},
                                                        {"--log_p", "log_prefix"},
                                                        {"--la", "lanes"}}) {
    const std::string beginning = pair.first, name = pair.second;
    CAPTURE(beginning);
    CHECK(value(parse({beginning, "2", "x"}), name) == "2 from --" + name);
    CHECK(value(parse({beginning + "=2", "x"}), name) == "2 from --" + name);
    CHECK(value(parse({beginning + "=", "x"}), name) == " from --" + name);
  }
  CHECK(value(parse({"--stand", "x"}), "standalone") == "true from --standalone");
  CHECK(parse({"--he"}).value().flag("help"));
  CHECK(error(parse({"--nproc"})) == "--nproc needs a value (N|auto|cpu|gpu)");
}

TEST_CASE("a name in full is no abbreviation of a longer one") {
  CHECK(value(parse({"--role", "2", "x"}), "role") == "2 from --role");
  CHECK(value(parse({"--nnodes", "2", "x"}), "nnodes") == "2 from --nnodes");
}

TEST_CASE("an abbreviation that torchrun understands means the same, whatever dtrun has besides") {
  CHECK(value(parse({"--no-", "x"}), "no_python") == "true from --no_python");  // not no_restart_exit_codes
  CHECK(parse({"--h"}).value().flag("help"));                                   // not heartbeat_timeout
  CHECK(value(parse({"--log-l", "7", "x"}), "log_line_prefix_template") ==
        "7 from --log_line_prefix_template");
}

TEST_CASE("an abbreviation that fits several options is refused, and they are named") {
  CHECK(error(parse({"--sta", "x"})) ==
        "--sta is the beginning of several options: --standalone, --stall_timeout, --start_method");
  CHECK(error(parse({"--duplicate=a", "x"})) ==
        "--duplicate is the beginning of several options: --duplicate_stdout_filters, "
        "--duplicate_stderr_filters");
}

TEST_CASE("the program's own options are never completed or looked at") {
  const auto parsed = parse({"--nproc", "2", "train.py", "--nnod", "5", "--sta", "--zzz"});
  REQUIRE(parsed.ok());
  CHECK(parsed.value().program == std::vector<std::string>{"train.py", "--nnod", "5", "--sta", "--zzz"});
  CHECK(parsed.value().values.size() == 1);
}

TEST_CASE("an option without its value says which value it needs") {
  CHECK(error(parse({"--rdzv_endpoint"})) == "--rdzv_endpoint needs a value (HOST[:PORT])");
  CHECK(error(parse({"--nnodes", "--", "true"})) == "--nnodes needs a value (N|MIN:MAX)");
}

TEST_CASE("a flag in the environment is 1 or 0") {
  CHECK(value(parse({"x"}, {{"DTRUN_STANDALONE", "1"}}), "standalone") == "true from DTRUN_STANDALONE");
  CHECK(value(parse({"x"}, {{"PET_STANDALONE", "0"}}), "standalone") == "false from PET_STANDALONE");
  CHECK(error(parse({"x"}, {{"PET_STANDALONE", "maybe"}})) == "PET_STANDALONE=maybe: expected 1 or 0");
}

TEST_CASE("a short option takes its value with or without a space") {
  CHECK(value(parse({"-r", "3", "x"}), "redirects") == "3 from --redirects");
  CHECK(value(parse({"-r3", "x"}), "redirects") == "3 from --redirects");
  CHECK(value(parse({"-t", "0:1,1:2", "x"}), "tee") == "0:1,1:2 from --tee");
  CHECK(value(parse({"-m", "x"}), "module") == "true from --module");
  CHECK(error(parse({"-mx"})).find("unknown option -mx") == 0);
  CHECK(error(parse({"-t"})) == "-t needs a value (N|RANK:N,...)");
}

TEST_CASE("a flag with a value is on or off, and nothing else is taken for one") {
  CHECK(value(parse({"--standalone=0", "x"}), "standalone") == "false from --standalone");
  CHECK(value(parse({"--standalone=True", "x"}), "standalone") == "true from --standalone");
  CHECK(error(parse({"--standalone=", "x"})) == "--standalone=: expected 1 or 0");
  CHECK(error(parse({"--standalone=no", "x"})) == "--standalone=no: expected 1 or 0");
}

TEST_CASE("an empty value is a value") {
  for (const auto& arguments :
       {std::vector<std::string>{"--log_prefix", "", "x"}, std::vector<std::string>{"--log_prefix=", "x"}}) {
    CHECK(value(parse(arguments), "log_prefix") == " from --log_prefix");
  }
}

// torchrun's, 1.13 to 2.15.
const char* const kTorchrunOptions[] = {"nnodes",
                                        "nproc_per_node",
                                        "rdzv_backend",
                                        "rdzv_endpoint",
                                        "rdzv_id",
                                        "rdzv_conf",
                                        "max_restarts",
                                        "monitor_interval",
                                        "start_method",
                                        "event_log_handler",
                                        "role",
                                        "log_dir",
                                        "redirects",
                                        "tee",
                                        "local_ranks_filter",
                                        "duplicate_stdout_filters",
                                        "duplicate_stderr_filters",
                                        "node_rank",
                                        "master_addr",
                                        "master_port",
                                        "local_addr",
                                        "logs_specs",
                                        "numa_binding",
                                        "signals_to_handle",
                                        "shutdown_timeout",
                                        "log_line_prefix_template"};
const char* const kTorchrunFlags[] = {"standalone", "module", "no_python", "run_path", "virtual_local_rank"};

std::string replaced(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

std::string capitals(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

TEST_CASE("every option of torchrun exists, in both spellings, as DTRUN_<NAME> and as PET_<NAME>") {
  for (const std::string name : kTorchrunOptions) {
    CAPTURE(name);
    CHECK(value(parse({"--" + name, "7", "x"}), name) == "7 from --" + name);
    CHECK(value(parse({"--" + replaced(name, '_', '-'), "7", "x"}), name) == "7 from --" + name);
    for (const std::string prefix : {"DTRUN_", "PET_"}) {
      const std::string variable = prefix + capitals(name);
      CHECK(value(parse({"x"}, {{variable, "7"}}), name) == "7 from " + variable);
    }
  }
  for (const std::string name : kTorchrunFlags) {
    CAPTURE(name);
    CHECK(value(parse({"--" + name, "x"}), name) == "true from --" + name);
    CHECK(value(parse({"--" + replaced(name, '_', '-'), "x"}), name) == "true from --" + name);
    for (const std::string prefix : {"DTRUN_", "PET_"}) {
      const std::string variable = prefix + capitals(name);
      CHECK(value(parse({"x"}, {{variable, "1"}}), name) == "true from " + variable);
    }
  }
}

TEST_CASE(
    "the table says of an option whether torchrun has it, or names dtrun's would take its abbreviations") {
  std::vector<std::string> torchruns(std::begin(kTorchrunOptions), std::end(kTorchrunOptions));
  torchruns.insert(torchruns.end(), std::begin(kTorchrunFlags), std::end(kTorchrunFlags));
  torchruns.insert(torchruns.end(), {"help", "print_completion"});
  for (const OptionEntry& option : kOptions) {
    CHECK_MESSAGE(option.in_torchrun == (std::ranges::count(torchruns, option.name) == 1), option.name);
  }
}

TEST_CASE("every option has a name of its own, a letter of its own, a help and its group's place") {
  std::set<std::string> names, letters, groups;
  std::string group;
  for (const OptionEntry& option : kOptions) {
    CAPTURE(option.name);
    CHECK(names.insert(option.name).second);
    CHECK((*option.short_name == '\0' || letters.insert(option.short_name).second));
    CHECK(std::string(option.help) != "");
    if (group != option.group) CHECK(groups.insert(option.group).second);
    group = option.group;
  }
}

TEST_CASE("every key of a config's launch section is an option of the command line") {
  int keys = 0;
  for (const worker::Option& key : worker::config_options()) {
    if (worker::group_of(key) != "launch") continue;
    ++keys;
    CHECK_MESSAGE(
        std::ranges::any_of(kOptions, [&](const auto& o) { return worker::name_of(key) == o.name; }),
        key.pointer);
  }
  CHECK(keys == 6);
}

TEST_CASE("-h asks for the short help and --help for the long one, and no variable asks for either") {
  CHECK(parse({"-h"}).value().flag("help"));
  CHECK(parse({"-h"}).value().short_help);
  CHECK(parse({"--help"}).value().flag("help"));
  CHECK_FALSE(parse({"--help"}).value().short_help);
  for (const char* name : {"HELP", "VERSION", "PRINT_COMPLETION"}) {
    const std::string dtruns = std::string("DTRUN_") + name, torchs = std::string("PET_") + name;
    CHECK(parse({"x"}, {{dtruns, "1"}, {torchs, "1"}}).value().values.empty());
  }
}

}  // namespace dtrun::options_test
