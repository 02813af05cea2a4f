#include "proto/base/text_in.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "proto/core/exit_codes.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"

namespace dtrun::text_in_test {

TEST_CASE("a file is read whole, whatever its bytes") {
  const test::Folder folder;
  const std::string bytes = std::string(40'000, 'x') + std::string("\0\r\n", 3);
  test::write_text(folder.path() / "file", bytes);
  CHECK(text_in(folder.path() / "file") == bytes);
  CHECK(read_text(folder.path() / "file").value() == bytes);
}

TEST_CASE("what cannot be read is empty, or told with the reason") {
  const test::Folder folder;
  CHECK(text_in(folder.path()).empty());
  CHECK(text_in(folder.path() / "none").empty());
  const Status directory = read_text(folder.path()).status(),
               none = read_text(folder.path() / "none").status();
  CHECK(directory.exit_code() == kExitNoInput);
  CHECK(directory.message() == folder.path().string() + ": cannot be read: Is a directory");
  CHECK(none.message() == (folder.path() / "none").string() + ": cannot be read: No such file or directory");
}

TEST_CASE("no more is read than asked for, and of regular files alone") {
  const test::Folder folder;
  test::write_text(folder.path() / "file", std::string(40'000, 'x'));
  CHECK(read_text(folder.path() / "file", 20'000).value().size() == 20'000);
  REQUIRE(mkfifo((folder.path() / "fifo").c_str(), 0600) == 0);
  for (const std::filesystem::path& special : {folder.path() / "fifo", std::filesystem::path("/dev/zero")}) {
    CHECK(text_in(special).empty());
    CHECK(read_text(special).status().message() == special.string() + ": is no regular file");
  }
}

}  // namespace dtrun::text_in_test
