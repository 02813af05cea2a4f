#include "cmd/options.h"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace dtrun;
using namespace dtrun::cmd;

namespace {

Result<ParsedCommandLine> parse(const std::vector<std::string>& arguments,
                                const std::map<std::string, std::string>& variables = {}) {
  return parse_command_line(arguments, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string value(const Result<ParsedCommandLine>& parsed, const std::string& name) {
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  const auto& values = parsed.value().options.values;
  return values.count(name) ? values.at(name).value + " from " + values.at(name).source : "absent";
}

std::string error(const Result<ParsedCommandLine>& parsed) {
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
  const auto parsed = parse({"--standalone", "train.json", "--nnodes", "5", "a=b"});
  REQUIRE(parsed.ok());
  CHECK(parsed.value().options.program == std::vector<std::string>{"train.json", "--nnodes", "5", "a=b"});
  CHECK_FALSE(parsed.value().options.has("nnodes"));
  CHECK_FALSE(parsed.value().options.program_is_verbatim);
}

TEST_CASE("after -- the program is taken as it is") {
  const auto parsed = parse({"--", "train.json", "--", "x"});
  REQUIRE(parsed.ok());
  CHECK(parsed.value().options.program == std::vector<std::string>{"train.json", "--", "x"});
  CHECK(parsed.value().options.program_is_verbatim);
}

TEST_CASE("an unknown option suggests the nearest one") {
  CHECK(error(parse({"--nproc_per_nod", "2", "x"})).find("did you mean --nproc_per_node?") !=
        std::string::npos);
  CHECK(error(parse({"--nproc-per-nodes=2", "x"})).find("did you mean --nproc_per_node?") !=
        std::string::npos);
  CHECK(error(parse({"--zzzzzzzzzzzzzzzz"})).find("did you mean") == std::string::npos);
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

TEST_CASE("--help names every option, an example and the exit codes, in lines that fit a terminal") {
  const auto parsed = parse({"--help"});
  REQUIRE(parsed.ok());
  REQUIRE(parsed.value().answer);
  const std::string& text = parsed.value().answer->text;
  for (const char* word :
       {"--standalone", "--nnodes", "--nproc_per_node", "--node_rank", "--rdzv_backend", "--rdzv_endpoint",
        "--rdzv_id", "--rdzv_conf", "--max_restarts", "--log_dir", "--local_addr", "--dry_run", "--version",
        "configs/fashion_mnist_convnet.json", "69 no rendezvous"}) {
    CHECK_MESSAGE(text.find(word) != std::string::npos, word);
  }
  std::size_t start = 0;
  for (std::size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    CHECK_MESSAGE(end - start <= 112, text.substr(start, end - start));
  }
}
