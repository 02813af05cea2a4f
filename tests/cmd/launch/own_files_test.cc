// The files that dtrun brings to a host, unpacked there by real shells and tar.
#include "cmd/launch/own_files.h"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::cmd::own_files_test {
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

// A folder with homes in it, as /home, and others' files that nobody may touch. The archive brings a program
// in dtrun's place that says how it was called.
class Homes {
 public:
  Homes() {
    for (const char* neighbour : {"a", "b", "c", "rm", "a/.cache/dtrun", "b/.cache/dtrun/old"}) {
      fs::create_directories(root() / neighbour);
      test::write_text(root() / neighbour / "kept", "");
      fs::last_write_time(root() / neighbour, fs::file_time_type::clock::now() - std::chrono::days(40));
    }
    fs::create_directories(folder_ / "program/bin");
    const fs::path program = folder_ / "program/bin/dtrun";
    test::write_text(program, "#!/bin/sh\nprintf 'runs %s %s umask ' \"$0\" \"$1\"; umask\n");
    fs::permissions(program, fs::perms::owner_all);
    archive_ = *archive_of(program).value();
  }

  fs::path root() const { return folder_ / "home"; }

  // In `root`, as sshd starts the command in the home: relative paths meet the neighbours.
  test::Ended bring(double part, const std::vector<std::string>& environment) const {
    const auto size = static_cast<std::size_t>(static_cast<double>(archive_.size()) * part);
    test::write_text(folder_ / "archive", archive_.substr(0, size));
    return test::run({"sh", "-c", "cd \"$2\" && umask 027 && exec sh -c \"$0\" < \"$1\"",
                      bringing_script("build", archive_.size()), folder_ / "archive", root()},
                     environment);
  }

  std::set<std::string> files_outside(const fs::path& home) const {
    std::set<std::string> found;
    for (auto at = fs::recursive_directory_iterator(root()); at != fs::recursive_directory_iterator(); ++at) {
      if (at->path() == home)
        at.disable_recursion_pending();
      else
        found.insert(at->path().string());
    }
    return found;
  }

 private:
  const test::Folder folder_;
  std::string archive_;
};

const std::vector<std::string> kHomeNames{
    "a b",   "a  b\tc", "*",  "a * b", "?",     "[a-z]",       "it's",       "a \"b\" c",
    "a\nb",  "a\n",     "\\", "a\\ b", "{a,b}", "$(rm -rf a)", "`rm -rf a`", "a; rm -rf a",
    "a & b", "-rf",     "~",  "!a",    "#",     "a>b",         "ü"};

TEST_CASE("whatever a home is called, dtrun is brought there and nothing beside it is touched") {
  for (const std::string& name : kHomeNames) {
    for (const bool is_home : {true, false}) {
      const Homes homes;
      CAPTURE(name);
      const fs::path home = homes.root() / name, cache = is_home ? home / ".cache" : home;
      const std::vector<std::string> environment{"HOME=" + (is_home ? home : homes.root() / "a").string(),
                                                 "XDG_CACHE_HOME=" + (is_home ? "" : home.string())};
      const auto before = homes.files_outside(home);
      const test::Ended cut = homes.bring(0.3, environment);  // within the program
      CHECK(cut.exit_code == 73);
      CHECK(!fs::exists(cache / "dtrun/build"));
      const std::string runs = "runs " + (cache / "dtrun/build/bin/dtrun").string() + " agent umask 0027\n";
      for (const std::string& expected : {kWantsFiles + runs, runs}) {
        const test::Ended brought = homes.bring(1, environment);
        CHECK_MESSAGE(brought.exit_code == 0, brought.err);
        CHECK(brought.out == expected);
      }
      CHECK(std::distance(fs::directory_iterator(cache / "dtrun"), {}) == 1);
      CHECK(homes.files_outside(home) == before);
    }
  }
}

TEST_CASE("a home that is no absolute path gets nothing, and a cache that is none does not count") {
  const Homes homes;
  const auto before = homes.files_outside("");
  for (const std::string home : {"", "a", "./b", "a b"}) {
    CAPTURE(home);
    for (const std::string cache : {"", "b", "b/.cache", "../home/b"}) {
      const test::Ended ended = homes.bring(1, {"HOME=" + home, "XDG_CACHE_HOME=" + cache});
      CHECK(ended.exit_code == 73);
      CHECK(test::contains(ended.err, "neither HOME nor XDG_CACHE_HOME is an absolute path"));
      CHECK(ended.out.empty());
    }
  }
  CHECK(homes.files_outside("") == before);
  const fs::path home = homes.root() / "mine";
  CHECK(homes.bring(1, {"HOME=" + home.string(), "XDG_CACHE_HOME=b"}).exit_code == 0);
  CHECK(fs::exists(home / ".cache/dtrun/build/bin/dtrun"));
  CHECK(homes.files_outside(home) == before);
}

}  // namespace
}  // namespace dtrun::cmd::own_files_test
