// Folders of temporary files, and those that a SIGKILL left.
#include "agent/process/scratch.h"

#include <doctest/doctest.h>

#include <fstream>

#include "proto/base/ids.h"
#include "tests/support/folder.h"

namespace dtrun::agent::scratch_test {

namespace fs = std::filesystem;
using dtrun::test::Folder;

TEST_CASE("a folder whose process is gone is removed by the next one, and no other") {
  const Folder folder;
  Loop loop;
  Disk disk(loop);
  const fs::path abandoned = folder / ("dtrun-" + random_id());
  fs::create_directories(abandoned / "below");
  std::ofstream(abandoned / "below/file") << "x";
  const fs::path other = folder / "dtrun-0", foreign = folder / ("other-" + random_id());
  fs::create_directories(other);
  fs::create_directories(foreign);
  {
    Scratch living(folder / ("dtrun-" + random_id()), disk);
    REQUIRE(living.make().ok());
    Scratch next(folder / ("dtrun-" + random_id()), disk);
    REQUIRE(next.make().ok());
    REQUIRE(disk.run([] {}));
    CHECK_FALSE(fs::exists(abandoned));
    CHECK(fs::exists(living.path()));
    CHECK(fs::exists(next.path()));
    CHECK(next.make().ok());
  }
  CHECK(fs::exists(other));
  CHECK(fs::exists(foreign));
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 2);
}

TEST_CASE("a folder that is there already is not taken") {
  const Folder folder;
  Loop loop;
  Disk disk(loop);
  const fs::path path = folder / ("dtrun-" + random_id());
  fs::create_directory(path);
  Scratch scratch(path, disk);
  CHECK_FALSE(scratch.make().ok());
}

}  // namespace dtrun::agent::scratch_test
