#include "worker/checkpoint/output_lock.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "worker/base/error.h"

namespace dtrun::worker::output_lock_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::write_text;

using std::chrono::milliseconds;

TEST_CASE("an output directory has one writer, and the second one is told who that is") {
  const Folder directory;
  const std::filesystem::path output = directory.path() / "runs" / "one";
  std::optional<OutputLock> first;
  first.emplace(output, milliseconds(0));
  try {
    const OutputLock second(output, milliseconds(120));
    FAIL("two writers");
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitCannotCreate);
    CHECK(contains(error.what(), output.string() + " is in use by another run (process " +
                                     std::to_string(getpid()) + " on "));
  }
  const auto writer = current_writer(output);
  REQUIRE(writer);
  CHECK(writer->starts_with("process " + std::to_string(getpid()) + " on "));
  CHECK_FALSE(contains(*writer, "\n"));
  first.reset();
  CHECK_FALSE(current_writer(output));
  CHECK_FALSE(current_writer(directory.path() / "nothing"));
  const OutputLock third(output, milliseconds(0));
}

TEST_CASE("a writer that dies without a word leaves no lock behind") {
  const Folder directory;
  const pid_t child = fork();
  if (child == 0) {
    const OutputLock lock(directory.path(), milliseconds(0));
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  const OutputLock lock(directory.path(), milliseconds(0));
}

TEST_CASE("the signature tells one directory from another, also where locks end at the node") {
  const Folder directory;
  const std::filesystem::path here = directory.path() / "here", there = directory.path() / "there";
  const OutputLock lock(here, milliseconds(0));
  CHECK(lock.held());
  CHECK(lock_signature(here) == lock.signature());
  CHECK(lock_signature(there).empty());
  CHECK(OutputLock(there, milliseconds(0)).signature() != lock.signature());
  CHECK(lock_signature(there) != lock.signature());
  CHECK(lock.signature().size() < kMaxLockSignature);
}

TEST_CASE("nothing of a longer signature stays behind a shorter one") {
  const Folder directory;
  write_text(directory / ".lock", "process 1 on " + std::string(200, 'x') + "\n1-1 and more");
  const OutputLock lock(directory.path(), milliseconds(0));
  CHECK(lock_signature(directory.path()) == lock.signature());
}

TEST_CASE("a directory that cannot be written is said by its name") {
  const Folder directory;
  write_text(directory.path() / "file", "x");
  try {
    const OutputLock lock(directory.path() / "file", milliseconds(0));
    FAIL("locked a file's inside");
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitCannotCreate);
    CHECK(contains(error.what(), (directory.path() / "file").string()));
  }
}

}  // namespace
}  // namespace dtrun::worker::output_lock_test
