// A launcher against hosts that mean it no good, or print without end: remote shells say what no agent of
// ours does.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "cmd/check/build.h"
#include "proto/base/framed_channel.h"
#include "proto/core/contract.h"
#include "proto/launch.pb.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::cmd::hostile_test {
namespace {

namespace fs = std::filesystem;
using launch::FromHost;

constexpr std::size_t kMostMemory = 50u << 20;

// As an agent of the launcher's own build begins.
std::string greeting() {
  const auto id = [](const char* program) {
    return build_id(fs::path(DTRUN_BIN_DIR) / program).substr(0, 16);
  };
  FromHost hello;
  hello.mutable_hello()->set_protocol(kLaunchProtocol);
  hello.mutable_hello()->set_build(id("dtrun") + "-" + id("dtrun-worker"));
  return std::string(kLaunchPreamble) + frame_of(hello);
}

// 0 before it is dtrun: until then the process has this one's memory.
std::size_t peak_memory(pid_t pid) {
  const std::string status = test::read_if_there("/proc/" + std::to_string(pid) + "/status");
  const std::size_t at = status.find("VmHWM:");
  return at == std::string::npos || !status.starts_with("Name:\tdtrun\n")
             ? 0
             : std::stoul(status.substr(at + 6)) << 10;
}

struct Launched {
  test::Ended ended;
  std::size_t memory = 0;  // bytes
};

// To the host "far", where `script` is all that its remote shell does; the script's output is in files of the
// folder.
Launched launch_at(const test::Folder& folder, const std::string& script, bool is_read = true) {
  test::write_text(folder / "remote_shell",
                   "#!/bin/sh\ncd '" + folder.path().string() + "'\n" + script + "\n");
  fs::permissions(folder / "remote_shell", fs::perms::owner_all);
  const std::string words =
      "exec " + test::shell_text({test::kDtrun, "-H", "far", "--ssh", folder / "remote_shell", "--", "true"});
  test::Process launcher({"sh", "-c", words + (is_read ? "" : " >/dev/null 2>&1")});
  Launched result;
  const bool in_time = test::eventually([&] {
    result.memory = std::max(result.memory, peak_memory(launcher.pid()));
    return !test::is_alive(launcher.pid());
  });
  CHECK(in_time);
  result.ended = launcher.end();
  return result;
}

TEST_CASE("a host that prints without end is given up with its first line, and fills no memory") {
  for (const std::string script : {"exec yes 'Welcome to far'",
                                   "test -e called && exec yes 'Welcome to far'; : > "
                                   "called; echo dtrun: not found >&2; exit 127"}) {
    CAPTURE(script);
    const test::Folder folder;
    const Launched launched = launch_at(folder, script);
    CHECK(launched.ended.exit_code == 69);
    CHECK_MESSAGE(
        test::contains(launched.ended.err,
                       "far: it printed 1 MiB before an agent answered, beginning with: Welcome to far"),
        launched.ended.err);
    CHECK(launched.memory > 0);
    // The files that would be brought are in memory too.
    const bool brings = script.starts_with("test");
    if (!brings) CHECK(launched.memory < kMostMemory);
  }
}

TEST_CASE("a shell may print almost a MiB before the agent answers") {
  FromHost refused;
  refused.mutable_refused()->set_exit_code(66);
  refused.mutable_refused()->set_why("not today");
  for (const bool is_too_much : {false, true}) {
    const test::Folder folder;
    const std::string hello = greeting();
    test::write_text(folder / "says", std::string((1u << 20) + (is_too_much ? 1 : 0), 'x'));
    test::write_text(folder / "hello", hello + frame_of(refused));
    const Launched launched = launch_at(folder, "cat says; sleep 1; cat hello; sleep 60");
    CHECK_MESSAGE(launched.ended.exit_code == (is_too_much ? 69 : 66), launched.ended.err);
  }
}

TEST_CASE("a host that says without end what an agent may say fills no memory") {
  const test::Folder folder;
  std::string says;
  for (int i = 0; i < 60'000; ++i) {
    FromHost said;
    said.mutable_said()->set_of_job(true);
    said.mutable_said()->set_text(std::to_string(i) + std::string(1000, '.'));
    says += frame_of(said);
  }
  test::write_text(folder / "says", greeting() + says);
  CHECK(launch_at(folder, "exec cat says", false).memory < kMostMemory);
  // Output that no agent writes does not count as an agent's, however long it goes on.
  test::write_text(folder / "says", greeting());
  const Launched launched = launch_at(folder, "cat says; exec yes");
  CHECK(launched.ended.exit_code == 69);
  CHECK_MESSAGE(test::contains(launched.ended.err, "far: "), launched.ended.err);
  CHECK(launched.memory < kMostMemory);
}

TEST_CASE("a host that will not run the job makes no success of it, whatever code it says") {
  for (const int code : {0, 1, 66, 255, 256, 512, -1}) {
    CAPTURE(code);
    const test::Folder folder;
    FromHost refused;
    refused.mutable_refused()->set_exit_code(code);
    refused.mutable_refused()->set_why("not today");
    test::write_text(folder / "says", greeting() + frame_of(refused));
    const Launched launched = launch_at(folder, "cat says; sleep 60");
    CHECK(launched.ended.exit_code == (code >= 1 && code <= 255 ? code : 70));
    CHECK(test::contains(launched.ended.err, "far: not today"));
  }
}

TEST_CASE("no control character of a host reaches the terminal") {
  const test::Folder folder;
  const std::string hostile = "\x1b]52;c;aGk=\x07\u009b2J\ndtrun: run job7 is over";
  FromHost said, job_said, planned, refused;
  said.mutable_said()->set_text(hostile);
  job_said.mutable_said()->set_text(hostile);
  job_said.mutable_said()->set_of_job(true);
  planned.mutable_planned()->add_notices(hostile);
  refused.mutable_refused()->set_exit_code(66);
  refused.mutable_refused()->set_why(hostile);
  test::write_text(folder / "says",
                   greeting() + frame_of(said) + frame_of(job_said) + frame_of(planned) + frame_of(refused));
  const auto check = [](const std::string& text) {
    CHECK(!text.empty());
    for (const char* control : {"\x1b", "\x07", "\xc2\x9b", "\r"}) CHECK(!test::contains(text, control));
  };
  const Launched after = launch_at(folder, "cat says; printf 'a\\033[2Jb\\n' >&2; sleep 60");
  check(after.ended.err);
  // Behind a newline nothing looks like a line of dtrun's own.
  CHECK_MESSAGE(!test::contains(after.ended.err, "\ndtrun: run job7"), after.ended.err);
  CHECK(test::contains(after.ended.err, "\n  dtrun: run job7"));
  const Launched before = launch_at(folder, "printf 'a\\033[2Jb\\302\\233c\\n' >&2; exit 9");
  check(before.ended.err);
  CHECK_MESSAGE(test::contains(before.ended.err, "far: ab?c"), before.ended.err);
  const Launched babbles = launch_at(folder, "printf 'a\\033[2Jb\\n'; exec yes");
  check(babbles.ended.err);
}

}  // namespace
}  // namespace dtrun::cmd::hostile_test
