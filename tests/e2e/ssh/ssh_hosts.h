// Hosts with a real OpenSSH server each, and a login host from which its user reaches them: network
// namespaces with names, addresses, processes, home directories and login shells of their own. Only programs
// are shared, and the one folder shared().
//
//   login ──┬── node0          login ── jump ──┬── node0
//           └── node1                          └── node1
//
// The user is no root, has one key, and knows every host's key and (on the login host) name.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/hosts.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::test {

// Why such hosts cannot be made on this machine; empty: they can.
std::string why_no_ssh_hosts();

// The dtrun in a host's /usr/local/bin, which sshd puts into PATH.
enum class Installed { kThisBuild, kAnotherBuild, kNothing };

struct SshHost {
  std::string shell = "/bin/bash";
  bool prints = false;  // the start files of its shell print to both streams
  Installed dtrun = Installed::kThisBuild;
  std::string sshd = {};  // more lines of its sshd_config
};

struct SshNetwork {
  std::vector<SshHost> hosts;
  std::optional<SshHost> jump = {};  // the only host that the login host reaches
  bool ipv6 = false;                 // no IPv4 but on loopback
  bool names = true;                 // hosts know each other's names; there is never a DNS
  bool name_is_loopback = false;     // a host's own name is 127.0.1.1, as Debian writes it
  bool docker0 = false;              // the first interface of every host is a bridge with 172.17.0.1
  bool dead_nic = false;             // the next one has an address, 192.168.7.x, and leads nowhere
};

class SshHosts {
 public:
  explicit SshHosts(SshNetwork network);

  static std::string name(int host) { return "node" + std::to_string(host); }
  std::string address(int host) const;

  // The command as the user runs it on the login host, in the home directory; its process is the command's,
  // with nothing in between. `dtrun` is this build's.
  std::vector<std::string> at_login(const std::vector<std::string>& argv) const;
  // The command as root on a host.
  std::vector<std::string> on(int host, const std::vector<std::string>& argv) const;

  // Every host and this test see this folder under one path, and the user may write to it.
  std::filesystem::path shared() const { return folder_ / "shared"; }
  // The paths at which this test finds files of a host and of the login host.
  std::filesystem::path seen_from_here(int host, const std::filesystem::path& file) const;
  std::filesystem::path seen_at_login(const std::filesystem::path& file) const;
  std::filesystem::path host_key(int host) const {
    return file(peers_[static_cast<std::size_t>(host)], "host_key");
  }
  static std::filesystem::path home() { return "/home/ada"; }

  // A process on a host. sshd's are none of them.
  struct Running {
    pid_t pid;  // as this test sees it
    std::string command;
  };
  std::vector<Running> processes(int host) const;

  // Takes the host's cable out of the switch: nothing arrives, and no error is reported.
  void cut(int host) const { set_cable(host, "down"); }
  void mend(int host) const { set_cable(host, "up"); }
  // Packets from the login host to this one vanish, while others reach it.
  void black_hole(int host) const;
  // No new connection from one host to another's unprivileged ports; both stay reachable otherwise.
  void filter(int from, int to) const;
  void stop_sshd(int host) const;
  // The user has not met the host yet; has met another one under its name.
  void forget_host_key(int host) const;
  void change_host_key(int host) const;

 private:
  struct Peer {
    std::string name;
    std::string address;  // in the hosts' network
    SshHost host;
    std::unique_ptr<NamespaceHolder> holder;
  };

  void plug_in(Peer& peer) const;
  void cable(const Peer& peer, const std::string& interface, const std::string& bridge,
             const std::string& address, const std::string& prefix) const;
  void acquaint(const Peer& peer) const;
  void furnish(const Peer& peer) const;
  std::filesystem::path programs_of(const Peer& peer) const;
  std::string names_known_to(const Peer& peer) const;
  std::string known_host(const Peer& peer, const std::string& key) const;
  void rewrite_known_host(int host, const std::string& line) const;
  void set_cable(int host, const std::string& state) const;
  // A file that the peer has of its own, in the test's folder.
  std::filesystem::path file(const Peer& peer, const std::string& name) const;

  const SshNetwork network_;
  Folder folder_;
  NamespaceHolder switch_;
  std::vector<Peer> peers_;  // the hosts, and the jump host behind them
  Peer login_;
};

}  // namespace dtrun::test
