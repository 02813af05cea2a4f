// The identity of this machine, as far as processes can reach each other's memory without a network.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace dtrun::worker {

// Equal for processes that share a boot, a PID namespace and a network namespace. Empty if the system does
// not tell one of them.
inline std::string host_identity() {
  std::string identity;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  if (!std::getline(boot, identity)) return "";
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    std::error_code failed;
    identity += " " + std::filesystem::read_symlink(space, failed).string();
    if (failed) return "";
  }
  return identity;
}

}  // namespace dtrun::worker
