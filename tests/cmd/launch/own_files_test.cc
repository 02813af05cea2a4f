// What dtrun brings to a host, unpacked there by the real shells and tar.
#include "cmd/launch/own_files.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& program) {
  return test::run({"sh", "-c", "command -v " + program}).exit_code == 0;
}

const fs::path kDtrun = fs::path(DTRUN_BIN_DIR) / "dtrun";

TEST_CASE("each login shell brings the files into the cache, and the next time they are there") {
  const auto archive = archive_of(kDtrun);
  REQUIRE(archive.ok());
  const std::string& bytes = *archive.value();
  CHECK(bytes.size() % 512 == 0);
  for (const char* shell : {"sh", "bash", "dash", "tcsh", "zsh", "fish"}) {
    if (!has(shell)) continue;
    CAPTURE(shell);
    const test::Folder folder;
    test::write_text(folder / "archive", bytes);
    const std::string command = "exec sh -c '" + bringing_script("build", bytes.size()) + "'";
    test::write_text(folder / "command", command);
    // The login shell gets the command as one word, as sshd gives it.
    const std::string run = "exec env HOME=" + (folder / "home").string() +
                            " XDG_CACHE_HOME=" + (folder / "cache").string() + " " + shell + " -c \"$(cat " +
                            (folder / "command").string() + ")\" < " + (folder / "archive").string();
    const test::Ended first = test::run({"sh", "-c", run});
    CHECK(first.out.starts_with(kWantsFiles));
    const fs::path there = folder / "cache/dtrun/build/bin/dtrun";
    REQUIRE(fs::exists(there));
    CHECK(test::read_text(there) == test::read_text(kDtrun));
    CHECK(first.out.find("dtrun-agent") != std::string::npos);
    const test::Ended second = test::run({"sh", "-c", run});
    CHECK(second.out.find("wants") == std::string::npos);
    CHECK(second.out.find("dtrun-agent") != std::string::npos);
    // Nothing half-made stays.
    CHECK(std::distance(fs::directory_iterator(folder / "cache/dtrun"), {}) == 1);
  }
}

TEST_CASE("an archive that is cut leaves nothing in the cache") {
  const auto archive = archive_of(kDtrun);
  REQUIRE(archive.ok());
  const test::Folder folder;
  test::write_text(folder / "archive", archive.value()->substr(0, archive.value()->size() / 2));
  test::write_text(folder / "command",
                   "exec sh -c '" + bringing_script("build", archive.value()->size()) + "'");
  const test::Ended ended =
      test::run({"sh", "-c",
                 "XDG_CACHE_HOME=" + (folder / "cache").string() + " exec sh -c \"$(cat " +
                     (folder / "command").string() + ")\" < " + (folder / "archive").string()});
  CHECK(ended.exit_code == 73);
  CHECK(fs::is_empty(folder / "cache/dtrun"));
}

}  // namespace
}  // namespace dtrun::cmd
