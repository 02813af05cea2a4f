#include "cmd/check/build.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::cmd::build_test {
namespace {

TEST_CASE("a program's build id is what readelf(1) prints") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string id = build_id(self);
  CHECK(id.size() == 40);
  const test::Ended readelf = test::run({"readelf", "-n", self});
  if (readelf.exit_code == 0) CHECK(readelf.out.find("Build ID: " + id) != std::string::npos);
}

TEST_CASE("what is no program has none") {
  CHECK(build_id("/etc/passwd").empty());
  CHECK(build_id("/nonexistent").empty());
  const test::Folder folder;
  test::write_text(folder / "cut", std::string("\x7f"
                                               "ELF\2\1\1",
                                               7));
  CHECK(build_id(folder / "cut").empty());
}

}  // namespace
}  // namespace dtrun::cmd::build_test
