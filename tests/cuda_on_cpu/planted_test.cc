// Planted faults, each in a process of its own, and what finds it. Sanitizers find theirs in their builds
// only: those cases are compiled there, and fail there if they do not run.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/cuda_on_cpu/sanitizer.h"
#include "tests/support/process.h"

namespace dtrun::planted_test {

namespace {

using dtrun::test::Ended;

Ended faulty(const std::string& name, const std::string& order = "forward") {
  // Else each process takes a second to end.
  return dtrun::test::run({DTRUN_FAULTY, name, order}, {"TSAN_OPTIONS=atexit_sleep_ms=0"});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void check_ends_well(const std::string& name) {
  for (const std::string order : {"forward", "reverse", "random"}) {
    const Ended ended = faulty(name, order);
    INFO(name << ": " << ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(contains(ended.out, "done"));
    CHECK(ended.err.empty());
  }
}

std::vector<std::string> outputs_by_order(const std::string& name) {
  std::vector<std::string> outputs;
  for (const std::string order : {"forward", "reverse", "random"}) outputs.push_back(faulty(name, order).out);
  return outputs;
}

TEST_CASE(
    "without its fault each of the programs ends well, in every order, and no sanitizer says anything") {
  for (const char* const name :
       {"barrier", "blocks", "shared", "global", "free", "pinned", "load", "programmatic", "look"})
    check_ends_well(name);
  const std::vector<std::string> bits = outputs_by_order("barrier");
  CHECK(bits[0] == bits[1]);
  CHECK(bits[0] == bits[2]);
}

TEST_CASE("blocks that race give other bits in other orders") {
  const std::vector<std::string> bits = outputs_by_order("blocks race");
  CHECK(bits[0] != bits[1]);
  const std::vector<std::string> without = outputs_by_order("blocks");
  CHECK(without[0] == without[1]);
  CHECK(without[0] == without[2]);
}

TEST_CASE("a host that looks behind a device pointer ends there") {
  const Ended ended = faulty("look behind");
  INFO(ended.err);
  CHECK_FALSE(contains(ended.out, "done"));
#if defined(CUDA_ON_CPU_ASAN) || defined(CUDA_ON_CPU_TSAN)
  CHECK(contains(ended.err, "SEGV"));
#else
  CHECK(ended.exit_code == 128 + 11);
#endif
}

#if defined(CUDA_ON_CPU_ASAN)
#define SANITIZER "address"

void check_reported(const std::string& name, const std::string& what, const std::string& where) {
  const Ended ended = faulty(name);
  INFO(name << ": " << ended.err);
  CHECK(ended.exit_code != 0);
  CHECK(contains(ended.err, what));
  CHECK(contains(ended.err, where));
  CHECK_FALSE(contains(ended.out, "done"));
}

TEST_CASE("AddressSanitizer reports a kernel that leaves its shared memory, or its allocation") {
  check_reported("shared overrun", "heap-buffer-overflow", "reads_dynamic");
  check_reported("global overrun", "use-after-poison", "fill");
}

TEST_CASE("AddressSanitizer reports memory that is freed before what uses it has run") {
  check_reported("free early", "use-after-poison", "fill");
  check_reported("pinned early", "heap-use-after-free", "memmove");
}

TEST_CASE("UndefinedBehaviorSanitizer reports a load of sixteen bytes that is not aligned") {
  check_reported("load misaligned", "misaligned address", "faulty.cc");
}
#elif defined(CUDA_ON_CPU_TSAN)
#define SANITIZER "thread"

TEST_CASE("ThreadSanitizer names the line of a missing barrier, though the numbers may be right") {
  const Ended ended = faulty("barrier missing");
  INFO(ended.err);
  CHECK(ended.exit_code != 0);
  CHECK(contains(ended.err, "data race"));
  CHECK(contains(ended.err, "turn_around"));
}
#else
#define SANITIZER ""

TEST_CASE("a programmatically launched kernel that touches memory before it waits ends the process") {
  for (const char* const name : {"programmatic without-wait", "programmatic compiled-for-80"}) {
    const Ended ended = faulty(name);
    INFO(name << ": " << ended.out << ended.err);
    CHECK(ended.exit_code == 128 + 6);
    CHECK(contains(ended.err, "device memory is touched before wait_for_previous()"));
    CHECK_FALSE(contains(ended.out, "done"));
  }
}

TEST_CASE("a missing barrier gives wrong numbers in some order of threads") {
  const std::vector<std::string> right = outputs_by_order("barrier"),
                                 wrong = outputs_by_order("barrier missing");
  CHECK(wrong[0] != right[0]);
  CHECK(wrong[1] != right[1]);
}
#endif

TEST_CASE("the faults that a sanitizer finds were looked at in its build") {
  // The build says what it sanitizes; the compiler has said above which cases there are.
  const std::string sanitize = DTRUN_SANITIZE;
  CHECK(sanitize.substr(0, sanitize.find(',')) == SANITIZER);
}

}  // namespace

}  // namespace dtrun::planted_test
