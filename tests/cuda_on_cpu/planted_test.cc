// Planted faults, each in a process of its own, and what finds it. Sanitizers find theirs in their builds
// only: those cases are compiled there, and fail there if they do not run.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/cuda_on_cpu/sanitizer.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace {

using dtrun::test::Ended;

Ended faulty(const std::string& name, const std::string& order = "forward",
             const std::vector<std::string>& environment = {}) {
  std::vector<std::string> all = environment;
  all.push_back("TSAN_OPTIONS=atexit_sleep_ms=0");  // else each process takes a second to end
  return dtrun::test::run({DTRUN_FAULTY, name, order}, all);
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

// The process ends by itself and says `what`.
void check_stops(const std::string& name, const std::string& what) {
  const Ended ended = faulty(name);
  INFO(name << ": " << ended.out << ended.err);
  CHECK(ended.exit_code == 128 + 6);
  CHECK(contains(ended.err, what));
  CHECK_FALSE(contains(ended.out, "done"));
}

std::vector<std::string> outputs_by_order(const std::string& name) {
  std::vector<std::string> outputs;
  for (const std::string order : {"forward", "reverse", "random"}) outputs.push_back(faulty(name, order).out);
  return outputs;
}

TEST_CASE(
    "without its fault each of the programs ends well, in every order, and no sanitizer says anything") {
  for (const char* const name : {"barrier", "fence", "blocks", "all", "mask", "dynamic", "static", "global",
                                 "free", "pinned", "load", "programmatic", "without-wait", "look"}) {
    check_ends_well(name);
  }
  const std::vector<std::string> bits = outputs_by_order("barrier");
  CHECK(bits[0] == bits[1]);
  CHECK(bits[0] == bits[2]);
}

TEST_CASE("threads that leave a block which waits in __syncthreads end the process, with the place") {
  check_stops("all left", "threads left the kernel while others wait");
  check_stops("all left", "in block (0,0,0) thread (");
}

TEST_CASE("a warp operation whose mask is not the lanes that are there ends the process") {
  check_stops("mask absent", "threads left the kernel while others wait");
  check_stops("mask without-me", "a lane that is not in the mask of its warp operation");
  check_stops("mask two", "lanes of a warp name different masks");
}

TEST_CASE("more shared memory than a block may have ends the process") {
  check_stops("static too-much", "more than 227 KiB of shared memory");
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

TEST_CASE("the environment says how many devices there are, which are seen, and what runs when") {
  CHECK(faulty("say").out.starts_with("cudaSuccess, 1 devices of 8589934592 bytes\n"));
  const Ended two =
      faulty("say", "forward",
             {"DTRUN_TEST_GPUS=4", "CUDA_VISIBLE_DEVICES=2,0,x,1", "DTRUN_TEST_GPU_MEMORY=1000000"});
  CHECK(two.out.starts_with("cudaSuccess, 2 devices of 1000000 bytes\n"));
  CHECK(contains(two.out, "the first is 0000:3D:00.0"));
  CHECK(contains(faulty("say", "forward", {"DTRUN_TEST_GPUS=0"}).out, "cudaErrorNoDevice, 0 devices"));
  CHECK(contains(faulty("say", "forward", {"CUDA_VISIBLE_DEVICES=0,0"}).out, "cudaErrorNoDevice, 0 devices"));
  const auto run = [](const std::vector<std::string>& environment) {
    return dtrun::test::run({DTRUN_FAULTY, "say"}, environment);
  };
  CHECK(contains(run({"DTRUN_TEST_GPU_ORDER=reverse"}).out, "threads 1, blocks 1, streams 1, seed 1\n"));
  CHECK(contains(run({"DTRUN_TEST_GPU_ORDER=random:7"}).out, "threads 2, blocks 2, streams 2, seed 7\n"));
  CHECK(contains(run({"DTRUN_TEST_GPU_ORDER=random:7", "DTRUN_TEST_GPU_STREAMS=at-once"}).out,
                 "threads 2, blocks 2, streams 0, seed 7\n"));
  CHECK(contains(run({"DTRUN_TEST_GPU_ORDER=sideways"}).err, "DTRUN_TEST_GPU_ORDER=sideways is unknown"));
  for (const std::string setting :
       {"DTRUN_TEST_GPU_STREAMS=never", "DTRUN_TEST_GPU_PAGEABLE=yes", "DTRUN_TEST_GPU_MISALIGNED=yes"})
    CHECK(contains(run({setting}).err, setting + " is unknown"));
}

TEST_CASE("the environment plans faults, for all processes or for the first") {
  const std::string fault = "DTRUN_TEST_GPU_FAULT=launch:2:700";
  CHECK(contains(faulty("say", "forward", {fault}).out,
                 "launch: cudaSuccess\nlaunch: cudaErrorIllegalAddress\n"));
  const dtrun::test::Folder folder;
  const std::string once = "DTRUN_TEST_GPU_FAULT_ONCE=" + (folder / "taken").string();
  CHECK(contains(faulty("say", "forward", {fault, once}).out, "launch: cudaErrorIllegalAddress\n"));
  CHECK(contains(faulty("say", "forward", {fault, once}).out, "launch: cudaSuccess\nlaunch: cudaSuccess\n"));
  CHECK(contains(faulty("say", "forward", {"DTRUN_TEST_GPU_FAULT=every-call:35"}).out,
                 "cudaErrorInsufficientDriver"));
  CHECK(contains(faulty("say", "forward", {"DTRUN_TEST_GPU_FAULT=launch:2"}).err, "unknown fault launch:2"));
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

TEST_CASE("AddressSanitizer reports a kernel that leaves its shared memory") {
  check_reported("dynamic overrun", "heap-buffer-overflow", "reads_dynamic");
  check_reported("static overrun", "heap-buffer-overflow", "reads_static");
}

TEST_CASE("AddressSanitizer reports a kernel that leaves its allocation") {
  check_reported("global overrun", "use-after-poison", "fill");
  check_reported("global underrun", "use-after-poison", "fill");
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
  for (const std::string name : {"barrier missing", "fence missing"}) {
    const Ended ended = faulty(name, "forward");
    INFO(name << ": " << ended.err);
    CHECK(ended.exit_code != 0);
    CHECK(contains(ended.err, "data race"));
    CHECK(contains(ended.err, name == "barrier missing" ? "turn_around" : "neighbours"));
  }
}
#else
#define SANITIZER ""

TEST_CASE("a programmatically launched kernel that touches memory before it waits ends the process") {
  const std::string what = "device memory is touched before wait_for_previous()";
  check_stops("programmatic without-wait", what);
  check_stops("programmatic compiled-for-80", what);
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
