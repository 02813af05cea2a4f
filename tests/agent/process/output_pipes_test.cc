// A worker's pipes: lines that have begun and not ended, on a console that is no terminal.
#include "agent/process/output_pipes.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

#include "tests/support/clock.h"

namespace dtrun::agent::output_pipes_test {
namespace {

using std::chrono::milliseconds;

// Keeps what it is given.
class Kept : public Console {
 public:
  Kept() : Console(Palette()) {}
  void write(Stream, std::string_view text) override { shown += text; }
  void say(const std::string&) override {}
  void set_bar(const std::string&) override {}
  void set_unfinished(const void*, std::string_view) override {}
  bool has_terminal() const override { return false; }
  bool is_terminal(Stream) const override { return false; }
  int columns() const override { return 0; }
  std::size_t queued() const override { return 0; }
  void drop() override {}

  std::string shown;
};

class Worker {
 public:
  Worker() {
    REQUIRE(pipes.open(&out_, &err_));
    pipes.read();
  }
  ~Worker() {
    close(out_);
    close(err_);
  }
  void prints(std::string_view text) { REQUIRE(write(out_, text.data(), text.size()) == std::ssize(text)); }
  void run_for(milliseconds time) {
    bool over = false;
    Timer timer(loop);
    timer.set(Loop::Clock::now() + time, [&over] { over = true; });
    while (!over) REQUIRE(loop.run_once().ok());
  }
  bool shows(std::string_view text) {
    for (const test::Patience patience(std::chrono::seconds(20));
         console.shown != text && !patience.is_over();)
      run_for(milliseconds(20));
    return console.shown == text;
  }

  Loop loop;
  Kept console;
  OutputPipes pipes{loop, console, {}, {}, [] {}};

 private:
  int out_ = -1, err_ = -1;
};

}  // namespace

TEST_CASE("a prompt is shown before its line ends, and what follows on a line of its own") {
  Worker worker;
  const test::Stopwatch watch;
  worker.prints("name? ");
  CHECK(worker.shows("name? \n"));
  CHECK(watch.wall() >= milliseconds(1400));
  worker.prints("Ada\n");
  CHECK(worker.shows("name? \nAda\n"));
}

TEST_CASE("a line's age counts from its beginning, though more of it comes all the time") {
  Worker worker;
  for (int i = 0; i < 20 && worker.console.shown.empty(); ++i) {
    worker.prints(".");
    worker.run_for(milliseconds(400));
  }
  CHECK(worker.console.shown.starts_with(".."));
  CHECK(worker.console.shown.ends_with(".\n"));
}

TEST_CASE("a line whose end lies in a pipe that is not read does not wait for its end") {
  Worker worker;
  worker.prints("half");
  worker.run_for(milliseconds(100));
  worker.pipes.pause(true);
  worker.prints(" and half\n");
  worker.run_for(milliseconds(2000));
  CHECK(worker.console.shown.empty());
  worker.pipes.pause(false);
  CHECK(worker.shows("half and half\n"));
}

}  // namespace dtrun::agent::output_pipes_test
