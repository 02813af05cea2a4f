#include "agent/system/termination_log.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/files.h"
#include "tests/support/folder.h"

namespace dtrun::termination_log_test {

using agent::kTerminationMessageBytes;
using agent::termination_message;

TEST_CASE("a message of up to 4,096 bytes stays as it is; a longer one ends after a whole line") {
  const std::string fits(kTerminationMessageBytes, 'x');
  CHECK(termination_message(fits) == fits);
  CHECK(termination_message("").empty());
  std::string lines;
  for (int i = 0; lines.size() <= kTerminationMessageBytes; ++i) lines += "line " + std::to_string(i) + "\n";
  const std::string cut = termination_message(lines);
  CHECK(cut.size() <= kTerminationMessageBytes);
  CHECK(cut.size() > kTerminationMessageBytes - 32);
  REQUIRE(cut.ends_with("\n…\n"));
  const std::string kept = cut.substr(0, cut.size() - std::string("…\n").size());
  CHECK(lines.starts_with(kept));
}

TEST_CASE("one long line is cut between two characters") {
  for (int shift = 0; shift < 3; ++shift) {
    std::string text(static_cast<std::size_t>(shift), 'x');
    while (text.size() <= kTerminationMessageBytes) text += "€";
    const std::string cut = termination_message(text);
    CHECK(cut.size() <= kTerminationMessageBytes);
    REQUIRE(cut.ends_with("€\n…\n"));
  }
}

TEST_CASE("the message replaces what the file had; no file is made, and no other thing written to") {
  const test::Folder folder;
  const std::string path = folder / "message";
  setenv("DTRUN_TERMINATION_LOG", path.c_str(), 1);
  agent::write_termination_message("the job failed");
  CHECK(!std::filesystem::exists(path));
  test::write_text(path, "a long text of an earlier container");
  agent::write_termination_message("the job failed");
  CHECK(test::read_text(path) == "the job failed");
  std::filesystem::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  agent::write_termination_message("would block");  // nobody reads
  unsetenv("DTRUN_TERMINATION_LOG");
}

}  // namespace dtrun::termination_log_test
