#include "agent/process/error_file.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/folder.h"

namespace dtrun::error_file_test {

using namespace dtrun::agent;

TEST_CASE("@record's error file gives message and traceback") {
  const WorkerError error = parse_error_file(
      R"({"message": {"message": "ValueError: boom", "extraInfo":
          {"py_callstack": "Traceback (most recent call last):\n  File \"a.py\"\nValueError: boom\n",
           "timestamp": "1700000000"}}})");
  CHECK(error.message == "ValueError: boom");
  CHECK(error.traceback == "Traceback (most recent call last):\n  File \"a.py\"\nValueError: boom");
}

TEST_CASE("a plain message is taken as well") {
  CHECK(parse_error_file(R"({"message": "no data"})").message == "no data");
  CHECK(parse_error_file(R"({"message": {"message": "no data"}})").message == "no data");
}

TEST_CASE("what is no error file says nothing") {
  for (const char* text :
       {"", "{", "[]", "3", "{}", R"({"message": 3})", R"({"message": {"message": [1]}})",
        R"({"message": {"extraInfo": 3}})", R"({"message": {"extraInfo": {"py_callstack": {}}}})"}) {
    CAPTURE(text);
    CHECK(parse_error_file(text).message.empty());
    CHECK(parse_error_file(text).traceback.empty());
  }
}

TEST_CASE("a file name that is no UTF-8, which Python writes as half a surrogate pair, hides nothing") {
  const auto message = [](const std::string& text) {
    return parse_error_file(R"({"message": {"message": ")" + text + R"("}})").message;
  };
  CHECK(message(R"(no file caf\udce9.txt)") == "no file caf\xef\xbf\xbd.txt");
  CHECK(message(R"(\ud83d\ude00 \ud83d)") == "\xf0\x9f\x98\x80 \xef\xbf\xbd");
  CHECK(message(R"(\udce9 \\ud83d \\\udce9 \uzzzz)") == "");
  CHECK(message(R"(\udce9 \\ud83d \\\udce9)") == "\xef\xbf\xbd \\ud83d \\\xef\xbf\xbd");
  CHECK(message(R"(\udce9 \u00e9)") == "\xef\xbf\xbd \xc3\xa9");
}

TEST_CASE("control characters do not reach the terminal") {
  CHECK(parse_error_file(R"({"message": "a\u001b[2Jb\nc"})").message == "ab\nc");
}

TEST_CASE("a text of up to 16 KiB stays whole, of a longer one the end") {
  const auto message = [](std::size_t size) {
    return parse_error_file(R"({"message": ")" + std::string(size, 'x') + R"("})").message;
  };
  CHECK(message(16384) == std::string(16384, 'x'));
  CHECK(message(16385) == "..." + std::string(16384, 'x'));
}

TEST_CASE("an error file of up to 1 MiB is read, a longer one is cut and says nothing") {
  const dtrun::test::Folder folder;
  const auto file = folder.path() / "error.json";
  const auto message = [&](std::size_t size) {
    const std::string head = R"({"message": "the end", "padding": ")", tail = R"("})";
    std::ofstream(file) << head << std::string(size - head.size() - tail.size(), 'x') << tail;
    CHECK(std::filesystem::file_size(file) == size);
    const dtrun::agent::WorkerError error = read_error_file(file);
    CHECK((error.written_at > 1.7e9) == !error.message.empty());
    return error.message;
  };
  CHECK(message(1048576) == "the end");
  CHECK(message(1048577).empty());
}

TEST_CASE("of a very long traceback the innermost frames stay") {
  std::string frames;
  for (int i = 0; i < 5000; ++i) frames += "frame " + std::to_string(i) + R"(\n)";
  const WorkerError error = parse_error_file(
      R"({"message": {"message": "m", "extraInfo": {"py_callstack": ")" + frames + R"("}}})");
  CHECK(error.traceback.size() < 17000);
  CHECK(error.traceback.starts_with("...\nframe "));
  CHECK(error.traceback.ends_with("\nframe 4999"));
}

}  // namespace dtrun::error_file_test
