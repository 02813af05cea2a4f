#include "agent/output/log_file.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/files.h"
#include "tests/support/folder.h"

namespace dtrun::log_file_test {

using namespace dtrun::agent;
using dtrun::test::Folder;
using dtrun::test::read_if_there;

namespace {

LogFile open(const std::filesystem::path& path, std::uint64_t max_size) {
  auto file = LogFile::open(path, max_size);
  REQUIRE_MESSAGE(file.ok(), file.status().message());
  return std::move(file).value();
}

}  // namespace

TEST_CASE("without a limit the file grows, and an earlier one is continued") {
  Folder folder;
  const auto path = folder.path() / "log";
  CHECK(open(path, 0).write("one\n").ok());
  CHECK(open(path, 0).write("two\n").ok());
  CHECK(read_if_there(path) == "one\ntwo\n");
}

TEST_CASE("a full file gets a number, the oldest goes, and lines stay whole") {
  Folder folder;
  const auto path = folder.path() / "log";
  LogFile file = open(path, 20);
  std::string all;
  for (int i = 0; i < 40; ++i) all += "line " + std::to_string(i) + "\n";  // 7 or 8 bytes each: two a file
  for (std::size_t at = 0; at < all.size(); at += 24) CHECK(file.write(all.substr(at, 24)).ok());
  CHECK_FALSE(std::filesystem::exists(path.string() + ".6"));
  std::string kept;
  for (int number = LogFile::kKept; number >= 0; --number) {
    const std::string text = read_if_there(
        number == 0 ? path : std::filesystem::path(path.string() + "." + std::to_string(number)));
    CHECK(text.size() <= 27);  // and the rest of a line
    CHECK(text.starts_with("line "));
    CHECK(text.ends_with("\n"));
    kept += text;
  }
  CHECK(all.ends_with(kept));
}

TEST_CASE("a file may be as long as its limit, and with the rest of a line twice that") {
  Folder folder;
  const auto exact = folder.path() / "exact", twice = folder.path() / "twice";
  LogFile file = open(exact, 10);
  CHECK(file.write("123456789\n").ok());
  CHECK_FALSE(std::filesystem::exists(exact.string() + ".1"));
  CHECK(file.write("\n").ok());
  CHECK(read_if_there(exact.string() + ".1") == "123456789\n");
  CHECK(read_if_there(exact) == "\n");
  LogFile endless = open(twice, 10);
  CHECK(endless.write(std::string(20, 'x')).ok());
  CHECK_FALSE(std::filesystem::exists(twice.string() + ".1"));
  CHECK(endless.write("y").ok());
  CHECK(read_if_there(twice.string() + ".1") == std::string(20, 'x'));
  CHECK(read_if_there(twice) == "y");
}

TEST_CASE("a limit counts what an earlier file has") {
  Folder folder;
  const auto path = folder.path() / "log";
  CHECK(open(path, 0).write("123456789\n").ok());
  CHECK(open(path, 15).write("abcdefgh\n").ok());
  CHECK(read_if_there(path) == "abcdefgh\n");
  CHECK(read_if_there(path.string() + ".1") == "123456789\n");
}

TEST_CASE("a line longer than a file may be is cut, and no byte is lost") {
  Folder folder;
  const auto path = folder.path() / "log";
  LogFile file = open(path, 10);
  CHECK(file.write(std::string(34, 'x') + "\n").ok());
  std::string kept;
  for (int number = LogFile::kKept; number >= 1; --number)
    kept += read_if_there(path.string() + "." + std::to_string(number));
  CHECK(kept + read_if_there(path) == std::string(34, 'x') + "\n");
}

TEST_CASE("a file that one process is to write is refused to another one as long as that lives") {
  Folder folder;
  const auto path = folder.path() / "log";
  const auto open_as = [&](LogFile::Writers writers) { return LogFile::open(path, 0, writers); };
  int ready[2], go[2];
  REQUIRE(pipe(ready) == 0);
  REQUIRE(pipe(go) == 0);
  const pid_t other = fork();
  if (other == 0) {
    auto file = open_as(LogFile::Writers::kOneProcess);
    char byte = file.ok() ? 'y' : 'n';
    [[maybe_unused]] ssize_t n = write(ready[1], &byte, 1);
    n = read(go[0], &byte, 1);
    _exit(0);
  }
  char byte = 'n';
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(byte == 'y');
  const auto refused = open_as(LogFile::Writers::kOneProcess);
  CHECK(refused.status().exit_code() == 73);
  CHECK(refused.status().message() ==
        "another run writes " + path.string() + " now: give each run its own --rdzv_id or --log_dir");
  CHECK(open_as(LogFile::Writers::kAnyNumber).ok());
  CHECK(write(go[1], &byte, 1) == 1);
  waitpid(other, nullptr, 0);
  CHECK(open_as(LogFile::Writers::kOneProcess).ok());
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) close(fd);
}

TEST_CASE("a file that cannot be written says so once, then takes nothing") {
  CHECK(LogFile::open("/nonexistent/log", 0).status().message().find("cannot write /nonexistent/log") == 0);
  LogFile full = open("/dev/full", 0);
  CHECK(full.write("x").message().find("No space left") != std::string::npos);
  CHECK_FALSE(full.is_open());
  CHECK(full.write("x").ok());
}

}  // namespace dtrun::log_file_test
