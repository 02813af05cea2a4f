// A worker that writes 1 GB: nothing is lost, and the agent does not grow.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::gigabyte_test {

using namespace dtrun::test;

namespace {

constexpr std::uintmax_t kGigabyte = 1u << 30;

// Peak resident memory in KiB; 0 if the process is gone.
long peak_memory(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
  }
  return 0;
}

struct Ran {
  int code = 0;
  long peak = 0;
};

// `exec` keeps the agent's pid the shell's.
Ran run(const std::string& options, const std::string& worker) {
  Process job({"/bin/sh", "-c",
               "exec " + shell_text({kDtrun}) + " --rdzv_id t " + options + " -- " +
                   shell_text({"/bin/sh", "-c", worker})});
  Ran ran;
  for (long peak = 1; peak > 0;) {
    peak = peak_memory(job.pid());
    ran.peak = std::max(ran.peak, peak);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ran.code = job.wait();
  return ran;
}

}  // namespace

TEST_CASE("1 GB of lines to a file is there to the last byte, in bounded memory") {
  Folder logs;
  const Ran ran =
      run("--log_dir " + logs.path().string() + " -r 1", "yes a line of some length | head -c 1073741824");
  CHECK(ran.code == 0);
  CHECK(ran.peak > 0);
  CHECK(ran.peak < 64 * 1024);
  CHECK(std::filesystem::file_size(logs.path() / "t/attempt_1/0/stdout.log") == kGigabyte);
}

TEST_CASE("1 GB without a newline and of any bytes, to rotated files and the console, in bounded memory") {
  Folder logs;
  const Ran ran = run("--log_dir " + logs.path().string() + " --log_max_size 10M --log_prefix '> ' > " +
                          (logs.path() / "console").string(),
                      "head -c 1073741824 /dev/zero");
  CHECK(ran.code == 0);
  CHECK(ran.peak > 0);
  CHECK(ran.peak < 64 * 1024);
  std::uintmax_t kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(logs.path() / "t/attempt_1/0")) {
    kept += entry.path().filename().string().starts_with("stdout") ? entry.file_size() : 0;
  }
  CHECK(kept >= (50u << 20));
  CHECK(kept <= (120u << 20));
  // Each piece of 64 KiB became a line with its prefix.
  CHECK(std::filesystem::file_size(logs.path() / "console") == kGigabyte + 3 * (kGigabyte / 65536));
}

}  // namespace dtrun::gigabyte_test
