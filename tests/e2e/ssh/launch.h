// dtrun --hostfile on hosts made for a test.
#pragma once

#include <string>
#include <vector>

#include "tests/e2e/ssh/ssh_hosts.h"
#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"

namespace dtrun::test {

// A launcher and its agents that have this in their environment are parted by silence soon.
inline std::string impatient() {
  return "DTRUN_TEST_TIMES=launcher_silence=" + std::to_string(soon(std::chrono::seconds(8)).count());
}

// `environment` ("NAME=value"): of what is run there over ssh.
inline std::vector<SshHost> alike(int count, const std::string& environment = "") {
  const std::string set = environment.empty() ? "" : "SetEnv " + environment + "\n";
  return std::vector<SshHost>(static_cast<std::size_t>(count), SshHost{.sshd = set});
}

// dtrun with `words` behind the first `count` hosts, typed on the login host.
inline std::vector<std::string> launch(const SshHosts& hosts, int count,
                                       const std::vector<std::string>& words) {
  return hosts.at_login(joined({"dtrun", "-H", "node[0-" + std::to_string(count - 1) + "]"}, words));
}

// Runs on every host until it is ended, with a daemon that has left its session, and says "up".
inline std::vector<std::string> lasting_program() {
  return {"--nproc_per_node",
          "1",
          "--",
          "sh",
          "-c",
          "setsid sleep 1000 </dev/null >/dev/null 2>&1 & sleep 1000 & echo up; wait"};
}

// The host has nothing to run but sshd.
inline bool is_idle(const SshHosts& hosts, int host, Process::Duration limit = Process::Duration(10000)) {
  return eventually([&] { return hosts.processes(host).empty(); }, limit);
}

// The host's processes, for a test's message.
inline std::string running_on(const SshHosts& hosts, int host) {
  std::string text;
  for (const SshHosts::Running& process : hosts.processes(host)) text += process.command + "\n";
  return text;
}

inline bool has_line(const std::string& text, const std::string& part, const std::string& other = "") {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (contains(line, part) && contains(line, other)) return true;
  }
  return false;
}

}  // namespace dtrun::test
