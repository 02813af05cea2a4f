// A host of the job as --hostfile and -H name it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::cmd {

struct Host {
  std::string destination;  // as ssh takes it: "node3", "ada@node3", "ada@fe80::1%eth0" (never in brackets)
  int slots = 0;            // workers; 0: not said
  std::vector<int> gpus = {};  // ascending indices, of --include or --exclude; empty: all

  std::string name() const;  // the destination without its user

  bool operator==(const Host&) const = default;
};

// The longest name of DNS, a user, '@'.
inline constexpr std::size_t kLongestDestination = 320;

// True if ssh may be given `destination` as a word of its command line: a name that begins with '-' would be
// an option, and one with a shell's characters could act in a ProxyCommand. OpenSSH's own rule (ssh.c), for
// any remote shell.
bool is_destination(std::string_view destination);

}  // namespace dtrun::cmd
