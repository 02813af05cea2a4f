#include "proto/core/exit_codes.h"

#include <doctest/doctest.h>
#include <signal.h>

namespace dtrun::exit_codes_test {
namespace {

TEST_CASE("exit codes are the documented numbers: scripts depend on them") {
  CHECK(kExitOk == 0);
  CHECK(kExitUsage == 64);
  CHECK(kExitDataError == 65);
  CHECK(kExitNoInput == 66);
  CHECK(kExitUnavailable == 69);
  CHECK(kExitSoftware == 70);
  CHECK(kExitCannotCreate == 73);
  CHECK(kExitIo == 74);
  CHECK(kExitNoPermission == 77);
  CHECK(kExitConfig == 78);
  CHECK(exit_code_of_signal(SIGTERM) == 143);
  CHECK(exit_code_of_signal(SIGKILL) == 137);
}

TEST_CASE("only what the same input would bring again is not worth a restart") {
  for (int code = 0; code < 256; ++code) {
    const bool deterministic =
        code == 64 || code == 65 || code == 66 || code == 73 || code == 77 || code == 78;
    CHECK(is_deterministic_failure(code) == deterministic);
  }
}

TEST_CASE("how a process ended is described with the signal's name") {
  CHECK(describe_exit(3, 0) == "exit code 3");
  CHECK(describe_exit(0, SIGKILL) == "signal 9 (SIGKILL)");
  CHECK(describe_exit(0, SIGSEGV) == "signal 11 (SIGSEGV)");
  CHECK(describe_exit(0, 64) == "signal 64");
}

}  // namespace
}  // namespace dtrun::exit_codes_test
