// The common parts of tests with PyTorch: a Python that has it, and the same script under torchrun and under
// dtrun.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace dtrun::test {

inline const std::string kScripts = DTRUN_SOURCE_DIR "/tests/torch/scripts/";
// Importing torch takes seconds, on a busy machine many.
inline constexpr Process::Duration kLong{240000};

// The Python that has PyTorch, where why_no_torch() is empty.
inline std::string python_with_torch() {
  const char* chosen = std::getenv("DTRUN_TEST_PYTHON");
  return chosen != nullptr ? chosen : "/usr/bin/python3";
}

// Why it has none; empty: it has. Debian 13's cannot be used: built without libuv, it fails to make its own
// store unless told, under torchrun as under dtrun.
inline const std::string& why_no_torch() {
  static const std::string why = [] {
    Process probe({python_with_torch(), "-c",
                   "import torch.distributed as d; d.TCPStore('127.0.0.1', 0, 1, True); "
                   "raise SystemExit(not d.is_gloo_available())"});
    return probe.wait(kLong) == 0 ? ""
                                  : python_with_torch() +
                                        " has no PyTorch with a store and gloo (scripts/setup --tests, or "
                                        "DTRUN_TEST_PYTHON)";
  }();
  return why;
}

// The same, or why it lacks this module beside PyTorch.
inline std::string why_no_torch_with(const std::string& module) {
  if (!why_no_torch().empty()) return why_no_torch();
  Process probe({python_with_torch(), "-c", "import " + module});
  if (probe.wait(kLong) == 0) return "";
  return python_with_torch() + " has no " + module + " (pip install " + module + ", DTRUN_TEST_PYTHON)";
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

// The lines in an order that doesn't depend on timing, without dtrun's "[role:rank] ".
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
