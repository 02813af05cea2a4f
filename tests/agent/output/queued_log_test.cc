// A log file that a thread writes.
#include "agent/output/queued_log.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <future>

#include "tests/support/files.h"
#include "tests/support/folder.h"

namespace dtrun::agent::queued_log_test {
namespace {

void finish(Loop& loop, Disk& disk) {
  bool done = false;
  disk.post([] {}, [&done] { done = true; });
  while (!done) REQUIRE(loop.run_once().ok());
}

}  // namespace

TEST_CASE("its folder is made, all is written in order, and what waits is counted") {
  const test::Folder folder;
  Loop loop;
  Disk disk(loop);
  QueuedLog log(disk, folder / "a/b/log", 0, LogFile::Writers::kOneProcess);
  std::promise<void> gate;
  disk.post([opened = gate.get_future().share()] { opened.wait(); });
  int shrunk = 0;
  log.listen({.failed = [](const Status& why) { FAIL(why.message()); },
              .unwritten = {},
              .written = [&shrunk] { ++shrunk; }});
  log.write("one\n");
  log.write("two\n");
  CHECK(log.queued() == 8);
  gate.set_value();
  finish(loop, disk);
  CHECK(log.queued() == 0);
  CHECK(shrunk >= 2);
  CHECK(log.takes());
  CHECK(test::read_text(folder / "a/b/log") == "one\ntwo\n");
}

TEST_CASE("what a file does not take comes back, after the reason") {
  const test::Folder folder;
  std::filesystem::create_directories(folder / "log");  // a folder is in its place
  Loop loop;
  Disk disk(loop);
  QueuedLog log(disk, folder / "log", 0, LogFile::Writers::kOneProcess);
  std::string told;
  log.listen({.failed = [&told](const Status& why) { told += why.message() + "|"; },
              .unwritten = [&told](const std::string& text) { told += text; },
              .written = {}});
  log.write("one\n");
  log.write("two\n");
  finish(loop, disk);
  CHECK(told == "cannot write " + (folder / "log").string() + ": Is a directory|one\ntwo\n");
  CHECK_FALSE(log.takes());
  CHECK(log.queued() == 0);
}

TEST_CASE("a log that is forgotten is written all the same") {
  const test::Folder folder;
  Loop loop;
  Disk disk(loop);
  {
    QueuedLog log(disk, folder / "log", 0, LogFile::Writers::kOneProcess);
    log.listen({.failed = {}, .unwritten = {}, .written = [] { FAIL("nobody is there"); }});
    log.write("one\n");
  }
  finish(loop, disk);
  CHECK(test::read_text(folder / "log") == "one\n");
}

}  // namespace dtrun::agent::queued_log_test
