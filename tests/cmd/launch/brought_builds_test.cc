// Builds in a host's cache: those that run stay, those that nobody used for a month go.
#include "cmd/launch/brought_builds.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <string>

#include "cmd/check/build.h"
#include "cmd/launch/own_files.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::cmd::brought_builds_test {
namespace {

namespace fs = std::filesystem;

const std::string kBuild = "0123456789abcdef-fedcba9876543210", kOther = "00000000000000aa-none";

void age(const fs::path& folder, std::chrono::hours hours) {
  fs::last_write_time(folder, fs::file_time_type::clock::now() - hours);
}

// As it was brought, `hours` ago.
fs::path add_build(const fs::path& cache, const std::string& name, std::chrono::hours hours) {
  fs::create_directories(cache / name / "bin");
  test::write_text(cache / name / kBuildLock, "");
  age(cache / name, hours);
  return cache / name;
}

constexpr std::chrono::hours kLong(40 * 24);

TEST_CASE("a build that nobody used for a month goes, one that is in use stays") {
  const test::Folder folder;
  const fs::path cache = folder / "dtrun", own = add_build(cache, kBuild, kLong);
  const fs::path old = add_build(cache, kOther, kKeepBuilds + std::chrono::hours(1));
  const fs::path young = add_build(cache, "1-none", kKeepBuilds - std::chrono::hours(1));
  const fs::path used = add_build(cache, "2-none", kLong), half_made = cache / (kOther + ".4711");
  fs::create_directories(half_made / "bin");
  age(half_made, kLong);
  const Descriptor kept = keep_build(used), kept_too = keep_build(used);
  REQUIRE(kept.open());
  REQUIRE(kept_too.open());
  remove_old_builds(own);
  for (const fs::path& gone : {old, half_made}) CHECK(!fs::exists(gone));
  for (const fs::path& stays : {own, young, used}) CHECK(fs::exists(stays));
}

TEST_CASE("only what is called as a build is taken for one") {
  const test::Folder folder;
  const fs::path cache = folder / "dtrun", own = add_build(cache, kBuild, kLong);
  const fs::path elsewhere = add_build(folder.path(), kOther, kLong);
  for (const char* name :
       {"mine", "none", "-", "-none", "a-none.", "a-none.x", "a-b.1.2", "a-nonesense", "g-none", "a"})
    add_build(cache, name, kLong);
  fs::create_directory_symlink(elsewhere, cache / "b-none");
  remove_old_builds(own);
  for (const char* name :
       {"mine", "none", "a-none.", "a-none.x", "a-b.1.2", "a-nonesense", "g-none", "a", "b-none"}) {
    CAPTURE(name);
    CHECK(fs::exists(cache / name));
  }
  CHECK(fs::exists(elsewhere));
}

TEST_CASE("a program is a brought one only where launchers bring it") {
  CHECK(brought_build("/home/a b/.cache/dtrun/" + kBuild + "/bin/dtrun", kBuild) ==
        "/home/a b/.cache/dtrun/" + kBuild);
  CHECK(brought_build("/usr/local/bin/dtrun", kBuild).empty());
  CHECK(brought_build("/opt/" + kBuild + "/bin/dtrun", kBuild).empty());
  CHECK(brought_build("/home/a/.cache/dtrun/" + kOther + "/bin/dtrun", kBuild).empty());
}

TEST_CASE("an agent keeps the build that it runs from, and removes old ones") {
  const auto archive = archive_of(fs::path(DTRUN_BIN_DIR) / "dtrun");
  REQUIRE(archive.ok());
  const test::Folder folder;
  test::write_text(folder / "archive", *archive.value());
  const std::string build = build_id(fs::path(DTRUN_BIN_DIR) / "dtrun").substr(0, 16) + "-" +
                            build_id(fs::path(DTRUN_BIN_DIR) / "dtrun-worker").substr(0, 16);
  const fs::path cache = folder / "dtrun", other = add_build(cache, kOther, kLong);
  // Its launcher says nothing more, and goes when it is told to.
  test::Process agent({"sh", "-c", "(cat \"$0\"; exec sleep 600) | sh -c \"$1\"", folder / "archive",
                       bringing_script(build, archive.value()->size())},
                      {"XDG_CACHE_HOME=" + folder.path().string()});
  REQUIRE_MESSAGE(agent.wait_for_out("dtrun-agent"), agent.err());
  CHECK(test::eventually([&] { return !fs::exists(other); }));
  age(cache / build, kLong);
  remove_old_builds(cache / kOther);
  CHECK(fs::exists(cache / build / "bin/dtrun-worker"));
  kill(-agent.pid(), SIGKILL);
  agent.wait();
  CHECK(test::eventually([&] {
    remove_old_builds(cache / kOther);
    return !fs::exists(cache / build);
  }));
}

}  // namespace
}  // namespace dtrun::cmd::brought_builds_test
