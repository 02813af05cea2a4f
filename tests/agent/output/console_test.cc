#include "agent/output/console.h"

#include <doctest/doctest.h>
#include <pty.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "agent/output/terminal_console.h"

namespace dtrun::console_test {

using namespace dtrun::agent;

namespace {

// Takes the place of standard output and standard error, and changes no byte.
class OwnTerminal {
 public:
  OwnTerminal() : saved_out_(dup(STDOUT_FILENO)), saved_err_(dup(STDERR_FILENO)) {
    termios raw{};
    cfmakeraw(&raw);
    int slave = -1;
    REQUIRE(openpty(&master_, &slave, nullptr, &raw, nullptr) == 0);
    dup2(slave, STDOUT_FILENO);
    dup2(slave, STDERR_FILENO);
    close(slave);
  }
  ~OwnTerminal() {
    dup2(saved_out_, STDOUT_FILENO);
    dup2(saved_err_, STDERR_FILENO);
    for (const int fd : {saved_out_, saved_err_, master_}) close(fd);
  }
  OwnTerminal(const OwnTerminal&) = delete;

  // The next `size` bytes.
  std::string read_whole(std::size_t size) const {
    std::string text(size, 0);
    std::size_t got = 0;
    for (ssize_t n = 1; got < size && n > 0; got += static_cast<std::size_t>(n))
      n = std::max<ssize_t>(read(master_, text.data() + got, size - got), 0);
    text.resize(got);
    return text;
  }

 private:
  int saved_out_, saved_err_, master_ = -1;
};

}  // namespace

// It says that it can be written while it has room for less than that.
TEST_CASE("a terminal that takes nothing holds nobody up, and loses no byte") {
  for (const std::size_t length : {10, 100, 1000}) {
    CAPTURE(length);
    std::string said, shown;
    while (said.size() < 400'000) said += std::string(length - 1, 'a' + said.size() % 26) + "\n";
    bool was_first = false;
    {
      const OwnTerminal terminal;
      Loop loop;
      Disk disk(loop);
      TerminalConsole console(loop, disk, dtrun::ColourMode::kAuto, [](bool) {});
      std::promise<void> written;
      std::atomic<bool> all_read = false;
      std::thread reader([&] {
        was_first = written.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
        shown = terminal.read_whole(said.size());
        all_read = true;
      });
      console.write(Console::Stream::kOut, said);
      written.set_value();
      while (!all_read) {
        loop.call_at(Loop::Clock::now() + std::chrono::milliseconds(10), [] {});
        static_cast<void>(loop.run_once());
      }
      reader.join();
    }
    CHECK(was_first);  // write() came back before anybody read
    CHECK(shown == said);
  }
}

}  // namespace dtrun::console_test
