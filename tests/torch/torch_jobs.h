// What the tests with PyTorch share: a Python that has it, and the same script under torchrun and under
// dtrun.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace dtrun::test {

inline const std::string kScripts = DTRUN_SOURCE_DIR "/tests/torch/scripts/";
// Importing torch takes seconds, on a busy machine many.
inline constexpr Process::Duration kLong{240000};

// Ends the program with 77, which ctest shows as skipped, if there is none. Debian 13's cannot be used: built
// without libuv, it fails to make its own store unless told, under torchrun as under dtrun.
inline const std::string& python_with_torch() {
  static const std::string python = [] {
    const char* chosen = std::getenv("DTRUN_TEST_PYTHON");
    std::string candidate = chosen != nullptr ? chosen : "/usr/bin/python3";
    Process probe({candidate, "-c",
                   "import torch.distributed as d; d.TCPStore('127.0.0.1', 0, 1, True); "
                   "raise SystemExit(not d.is_gloo_available())"});
    if (probe.wait(kLong) == 0) return candidate;
    std::printf(
        "skipped: %s has no PyTorch with a store and gloo (scripts/setup --bench, or DTRUN_TEST_PYTHON)\n",
        candidate.c_str());
    std::exit(77);
  }();
  return python;
}

// That Python if it has this module as well; without it the test is skipped.
inline const std::string& python_with(const std::string& module) {
  const std::string& python = python_with_torch();
  Process probe({python, "-c", "import " + module});
  if (probe.wait(kLong) != 0) {
    std::printf("skipped: %s has no %s (pip install %s, DTRUN_TEST_PYTHON)\n", python.c_str(), module.c_str(),
                module.c_str());
    std::exit(77);
  }
  return python;
}

// One thread each, so that both launchers' workers add in the same order.
inline std::vector<std::string> environment() {
  return {"OMP_NUM_THREADS=1", "PYTHON_EXEC=" + python_with_torch()};
}

// argv[0] of `script` is a file of tests/torch/scripts.
inline std::vector<std::string> under_dtrun(const std::vector<std::string>& options,
                                            std::vector<std::string> script) {
  script[0] = kScripts + script[0];
  return joined(joined({kDtrun}, options), script);
}

// torchrun 1.13 dies on Python 3.11 unless it is given maps for both of these; they leave ranks 0 to 8 alone.
inline std::vector<std::string> under_torchrun(const std::vector<std::string>& options,
                                               std::vector<std::string> script) {
  script[0] = kScripts + script[0];
  return joined(
      joined({python_with_torch(), "-m", "torch.distributed.run", "-r", "9:1", "-t", "9:1"}, options),
      script);
}

// The lines in an order that doesn't depend on who was first, without dtrun's "[role:rank] ".
inline std::vector<std::string> sorted_lines(const std::string& text) {
  static const std::regex prefix(R"(^\[\w+:\d+\] )");
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(std::regex_replace(line, prefix, ""));
  std::sort(lines.begin(), lines.end());
  return lines;
}

inline std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace dtrun::test
