// The files of a detached job, also where they cannot grow.
#include "cmd/launch/detached_files.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>

#include "tests/support/folder.h"
#include "tests/support/small_files.h"

namespace dtrun::cmd::detached_files_test {
namespace {

struct Run {
  const test::Folder folder;
  DetachedWriter writer = std::move(DetachedWriter::open(folder.path())).value();
  DetachedReader reader = std::move(DetachedReader::open(folder.path())).value();

  void say(const std::string& text) const { (void)!write(writer.output(), text.data(), text.size()); }
};

}  // namespace

TEST_CASE("a reader gets what is written, as it is written, and then the exit code") {
  Run run;
  CHECK(run.reader.next().empty());
  run.say("one\n");
  CHECK(run.reader.next() == "one\n");
  run.say("two");
  CHECK(run.reader.next() == "two");
  CHECK(!run.reader.end());
  run.writer.finish(3);
  CHECK(run.reader.next() == "\ndtrun: ended with exit code 3\n");
  REQUIRE(run.reader.end());
  CHECK(run.reader.end()->exit_code == 3);
  CHECK(!run.reader.end()->is_cut);
}

TEST_CASE("who passes over what there is gets the rest alone") {
  Run run;
  run.say("one\n");
  run.reader.skip();
  run.say("two\n");
  CHECK(run.reader.next() == "two\n");
}

TEST_CASE("a run that begins again has neither the output nor the exit code of the last one") {
  Run run;
  run.say("one\n");
  run.writer.finish(3);
  const DetachedWriter again = std::move(DetachedWriter::open(run.folder.path())).value();
  DetachedReader reader = std::move(DetachedReader::open(run.folder.path())).value();
  CHECK(reader.next().empty());
  CHECK(!reader.end());
}

TEST_CASE("where there is no room the exit code is kept, and it is known that output was lost") {
  Run run;
  const test::SmallFiles small(16);
  run.say("first line\n");
  run.say("a longer line than there is room for\n");
  run.writer.finish(137);
  CHECK(run.reader.next() == "first line\na lon");
  REQUIRE(run.reader.end());
  CHECK(run.reader.end()->exit_code == 137);
  CHECK(run.reader.end()->is_cut);
}

}  // namespace dtrun::cmd::detached_files_test
