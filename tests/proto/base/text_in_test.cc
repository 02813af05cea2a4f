#include "proto/base/text_in.h"

#include <doctest/doctest.h>

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

}  // namespace dtrun::text_in_test
