// The common parts of the agent's process tests: how the agent and its odd workers are started, and what a
// job's processes are called.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "proto/base/ids.h"
#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"

namespace dtrun::agent::test {

using dtrun::test::contains;
using dtrun::test::eventually;
using dtrun::test::Folder;
using dtrun::test::is_alive;
using dtrun::test::Process;
using dtrun::test::read_if_there;
using dtrun::test::soon;
using dtrun::test::Stopwatch;

inline std::string free_port() { return std::to_string(dtrun::test::free_port()); }

// A time for an option of agent_under_test that the product must keep for the test to pass.
inline std::string soon_ms(int ms) { return std::to_string(soon(std::chrono::milliseconds(ms)).count()); }

inline std::string binary(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

inline std::vector<std::string> agent(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), binary("agent_under_test"));
  return arguments;
}

// An agent with `options` and a test_worker in `mode`.
inline std::vector<std::string> agent_with(std::vector<std::string> options, std::vector<std::string> mode) {
  options.insert(options.end(), {"--", binary("test_worker")});
  options.insert(options.end(), mode.begin(), mode.end());
  return agent(options);
}

// The same with the built-in trainer's protocol; the mode comes by the environment.
inline std::vector<std::string> trainer_agent(std::vector<std::string> options,
                                              const std::string& config = "{}") {
  options.insert(options.end(), {"--config", config, "--", binary("test_worker")});
  return agent(options);
}

// The numbers after "child" and "daemon" in a worker's "child N daemon M ready".
struct Family {
  pid_t child = -1, daemon = -1;
};
inline Family family_in(const std::string& out) {
  Family family;
  std::istringstream(out.substr(out.find("child ") + 6)) >> family.child;
  std::istringstream(out.substr(out.find("daemon ") + 7)) >> family.daemon;
  return family;
}

}  // namespace dtrun::agent::test
