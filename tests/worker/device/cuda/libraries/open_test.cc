// Libraries are opened from the first place that has a good one, and it is said where each place failed. A
// copy of zlib stands for CUDA's.
#include "worker/device/cuda/libraries/open.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <zlib.h>

#include <chrono>
#include <cstdlib>

#include "proto/core/exit_codes.h"
#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "worker/base/error.h"
#include "worker/device/cuda/libraries/python_path.h"

namespace dtrun::open_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda;
using namespace std::chrono_literals;
using test::contains;

namespace {

struct Zlib {
  decltype(&zlibVersion) version = nullptr;
};

const Library kLibrary{.name = "Ours", .soname = "libours.so.1", .versions = "1", .wheel = "nvidia-ours"};

// The path of a copy of zlib under our library's name, in the folder, which is made here.
std::string place_copy(const std::filesystem::path& folder) {
  Dl_info zlib{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&zlibVersion), &zlib) != 0);
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(zlib.dli_fname, folder / kLibrary.soname);
  return (folder / kLibrary.soname).string();
}

std::string open_ours(
    Zlib& table, const std::function<std::string()>& refuse = [] { return ""; }) {
  return open_library(
      kLibrary, [&](Symbols& symbols) { symbols.get(table.version, "zlibVersion"); }, refuse);
}

// A program named python3, and it alone, on PATH.
void place_python(const std::filesystem::path& folder, const std::string& script) {
  std::filesystem::create_directories(folder);
  test::write_text(folder / "python3", "#!/bin/sh\n" + script + "\n");
  std::filesystem::permissions(folder / "python3", std::filesystem::perms::owner_all);
  setenv("PATH", folder.c_str(), 1);
}

// The error of a function that throws.
template <class Function>
WorkerError error_of(const Function& function) {
  try {
    function();
  } catch (const WorkerError& error) {
    return error;
  }
  return {0, "nothing was thrown"};
}

}  // namespace

TEST_CASE("a library of the user's own folder is opened, and its functions can be called") {
  const test::Folder folder;
  const std::string file = place_copy(folder / "mine");
  setenv("DTRUN_CUDA_LIBRARY_PATH", (folder / "mine").c_str(), 1);
  Zlib table;
  CHECK(open_ours(table) == file);
  REQUIRE((table.version != nullptr));
  CHECK(std::string(table.version()) == zlibVersion());
}

TEST_CASE("a version that will not do is passed over for the next place") {
  const test::Folder folder;
  const std::string old = place_copy(folder / "old"), good = place_copy(folder / "good");
  setenv("DTRUN_CUDA_LIBRARY_PATH", ((folder / "old").string() + ":" + (folder / "good").string()).c_str(),
         1);
  Zlib table;
  int asked = 0;
  CHECK(open_ours(table, [&] { return ++asked == 1 ? "is version 0.9" : ""; }) == good);
  CHECK(asked == 2);
}

TEST_CASE("the packages of Python are looked into last") {
  const test::Folder folder;
  const std::string file = place_copy(folder / "site-packages" / "nvidia" / "ours" / "lib");
  unsetenv("DTRUN_CUDA_LIBRARY_PATH");
  place_python(folder / "bin", "echo /nowhere; echo " + (folder / "site-packages").string());
  Zlib table;
  CHECK(open_ours(table) == file);
}

TEST_CASE("what is missing is said in one line with every place, what was wrong there, and the way out") {
  const test::Folder folder;
  const std::string broken = (folder / "broken" / kLibrary.soname).string();
  const std::string old = place_copy(folder / "old");
  std::filesystem::create_directories(folder / "broken");
  test::write_text(broken, "no library");
  setenv("DTRUN_CUDA_LIBRARY_PATH", ((folder / "broken").string() + ":" + (folder / "old").string()).c_str(),
         1);
  setenv("CUDA_HOME", "/opt/no-cuda", 1);
  place_python(folder / "bin", "echo /some/site-packages");
  Zlib table;
  const WorkerError error = error_of([&] { open_ours(table, [] { return "is version 0.9"; }); });
  CHECK(error.exit_code() == kExitConfig);
  const std::string text = error.what();
  CAPTURE(text);
  CHECK(contains(text, "Ours 1 is needed"));
  CHECK(contains(text, broken + ": file too short"));
  CHECK(contains(text, old + " (is version 0.9)"));
  CHECK(contains(text, "libours.so.1 (not in the loader's folders)"));
  CHECK(contains(text, "/opt/no-cuda/lib64/libours.so.1 (not there)"));
  CHECK(contains(text, "/some/site-packages"));
  CHECK(contains(text, "nvidia-ours"));
  CHECK(contains(text, "DTRUN_CUDA_LIBRARY_PATH"));
  CHECK(!contains(text, "\n"));
  unsetenv("CUDA_HOME");
}

TEST_CASE("a library without one of the functions is not taken") {
  const test::Folder folder;
  const std::string file = place_copy(folder / "mine");
  setenv("DTRUN_CUDA_LIBRARY_PATH", (folder / "mine").c_str(), 1);
  place_python(folder / "bin", "exit 1");
  Zlib table;
  bool asked = false;
  const auto fill = [&](Symbols& symbols) {
    symbols.get(table.version, "zlibVersion");
    symbols.get(table.version, "zlibColour");
  };
  const auto refuse = [&] {
    asked = true;
    return "";
  };
  const WorkerError error = error_of([&] { open_library(kLibrary, fill, refuse); });
  CHECK(contains(error.what(), file + " (has no zlibColour)"));
  CHECK(contains(error.what(), "no python3 on PATH that answers"));
  CHECK(!asked);
}

TEST_CASE("Python is asked for its path, and one that fails, is absent or hangs has none") {
  const test::Folder folder;
  place_python(folder / "bin", "echo /a; echo '/b c'");
  CHECK(python_path("python3", 10s) == std::vector<std::string>{"/a", "/b c"});
  place_python(folder / "bin", "echo /a; exit 3");
  CHECK(python_path("python3", 10s).empty());
  CHECK(python_path("python-that-is-not-there", 10s).empty());
  setenv("PATH", "/usr/bin:/bin", 1);
  test::write_text(folder / "bin" / "python3", "#!/bin/sh\nsleep 100\n");
  const test::Stopwatch since;
  CHECK(python_path((folder / "bin" / "python3").string(), 200ms).empty());
  CHECK(since.fair() < 50s);
}

}  // namespace dtrun::open_test
