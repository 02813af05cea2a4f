// The file of a detached job's messages, where it cannot grow: RLIMIT_FSIZE does to it what a full disk does.
#include "cmd/launch/spool.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"

namespace dtrun::cmd {
namespace {

// While it lives, no file of this process grows beyond `bytes`.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~SmallFiles() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

struct Spool {
  const test::Folder folder;
  const SpoolPlace place{.file = folder / "run.spool", .words = folder / "run.err"};
  SpoolWriter writer = std::move(SpoolWriter::open(place)).value();

  // As much of it as there is room for.
  void say(const std::string& text) {
    launch::FromHost message;
    message.mutable_said()->set_text(text);
    std::string frame;
    append_frame(message.SerializeAsString(), &frame);
    (void)!write(writer.fd(), frame.data(), frame.size());
  }
  void end() {
    launch::FromHost ended;
    ended.mutable_ended()->set_exit_code(3);
    writer.finish(ended);
  }
  // The words that a reader gets; "3" at the end.
  std::vector<std::string> words() const {
    std::vector<std::string> all;
    SpoolReader reader = std::move(SpoolReader::open(place)).value();
    for (auto message = reader.next(); message; message = reader.next())
      all.push_back(message->has_ended() ? std::to_string(message->ended().exit_code())
                                         : message->said().text());
    return all;
  }
};

const std::string kLost = "the disk was full: what was said from here on is lost";

}  // namespace

TEST_CASE("messages and the end are read back") {
  Spool spool;
  spool.say("one");
  spool.say("two");
  spool.end();
  CHECK(spool.words() == std::vector<std::string>{"one", "two", "3"});
}

TEST_CASE("a message that a full disk cut off goes, and its loss is told, also where there is room again") {
  Spool spool;
  spool.say("one");
  {
    const SmallFiles small(test::read_text(spool.place.file).size() + 10);
    spool.say("a longer message than there is room for");
  }
  spool.end();
  CHECK(spool.words() == std::vector<std::string>{"one", kLost, "3"});
}

TEST_CASE("where there is no room for the end the last messages give way") {
  Spool spool;
  for (const char* text : {"one", "two", "three"}) spool.say(text + std::string(100, '.'));
  const SmallFiles small(test::read_text(spool.place.file).size());
  spool.end();
  CHECK(spool.words() ==
        std::vector<std::string>{"one" + std::string(100, '.'), "two" + std::string(100, '.'), kLost, "3"});
}

}  // namespace dtrun::cmd
