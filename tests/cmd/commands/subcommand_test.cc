// When a word that dtrun would run as a program is taken for a mistyped subcommand.
#include "cmd/commands/subcommand.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/folder.h"

namespace dtrun::subcommand_test {

using namespace dtrun::cmd;

namespace {

const std::vector<std::string> kNames{"store", "status", "help", "completion"};

// The refusal; empty: the word is run.
std::string refusal(const std::vector<std::string>& arguments, const std::string& path = "/nowhere") {
  const Environment environment = [&](const char* name) -> const char* {
    return std::string_view(name) == "PATH" ? path.c_str() : nullptr;
  };
  const Result<Options> options = parse_command_line(arguments, environment);
  REQUIRE_MESSAGE(options.ok(), options.status().message());
  const Status status = check_not_subcommand(options.value(), kNames, environment);
  CHECK((status.ok() || status.exit_code() == kExitUsage));
  return status.message();
}

bool names(const std::string& text, const std::string& command) {
  return text.find("did you mean dtrun " + command + "?") != std::string::npos;
}

}  // namespace

TEST_CASE("a word near a subcommand's name is refused with the right name, also behind options") {
  CHECK(refusal({"statsu"}) == "no program statsu, did you mean dtrun status? (dtrun help lists all)");
  CHECK(names(refusal({"statsu", "--json"}), "status"));
  CHECK(names(refusal({"sttore"}), "store"));
  CHECK(names(refusal({"hlep"}), "help"));
  CHECK(names(refusal({"--standalone", "complete"}), "completion"));
}

TEST_CASE("a subcommand behind options is told to come first") {
  CHECK(refusal({"--nnodes", "2", "status"}) ==
        "a command comes before its options: dtrun status ... (dtrun help status)");
}

TEST_CASE("a word that is near no subcommand is a program's") {
  for (const char* word : {"train", "python3", "mpirun", "x", "sh"}) CHECK(refusal({word}) == "");
}

TEST_CASE("a program that exists is never refused, be it executable or not, nor a file in this folder") {
  test::Folder folder;
  std::filesystem::create_directory(folder.path() / "bin");
  const std::string path = "/nowhere:" + (folder.path() / "bin").string();
  CHECK(names(refusal({"statsu"}, path), "status"));
  std::filesystem::create_directory(folder.path() / "bin/statsu");
  CHECK(names(refusal({"statsu"}, path), "status"));  // a folder is no program
  std::ofstream(folder.path() / "bin/stores").close();
  CHECK(refusal({"stores"}, path) == "");

  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  CHECK(names(refusal({"hepl"}), "help"));
  std::ofstream("hepl").close();
  CHECK(refusal({"hepl"}) == "");
  std::filesystem::current_path(before);
}

TEST_CASE("whoever says that it is a program is believed") {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--", "statsu"},
                                                    {"./statsu"},
                                                    {"bin/status"},
                                                    {"status.py"},
                                                    {"store.json"},
                                                    {"--no_python", "statsu"},
                                                    {"-m", "statsu"},
                                                    {"--run_path", "status"}}) {
    CHECK_MESSAGE(refusal(arguments) == "", arguments.front());
  }
  CHECK(refusal({"--no_python=0", "statsu"}) != "");
}

}  // namespace dtrun::subcommand_test
