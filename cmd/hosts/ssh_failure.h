// Explains why a remote shell (ssh, or the command of --ssh) ended before the agent answered: the cause in
// its own words, and the remedy. Pure. Based on OpenSSH's messages, which are not translated.
#pragma once

#include <string>
#include <string_view>

#include "cmd/hosts/host.h"

namespace dtrun::cmd {

struct SshFailure {
  enum FailureKind {
    kRefusedLogin,    // sshd takes no more for now (MaxStartups) or the connection broke: worth another try
    kUnknownHostKey,  // seen for the first time
    kChangedHostKey,  // another one than known_hosts has
    kPermission,      // no way to log in without a prompt
    kUnknownHost,     // no address for the name
    kUnreachable,     // timed out, no route, no listener
    kNoDtrun,         // logged in, but there is no dtrun to run
    kNoPlace,         // and none could be brought
    kOther,
  };
  FailureKind kind = kOther;
  std::string what;    // one line, the remote shell's own words: "Permission denied (publickey)."
  std::string remedy;  // what to do, one line; empty: nothing that is sure to help
};

// The last message, before the folder, of the line of shell that brings dtrun, if it fails.
inline constexpr const char* kCannotBring = "cannot bring dtrun to ";

// `exit_status`: of the remote shell, 128 + signal if a signal ended it. `standard_error`: all or the end of
// its output there, with -v or without. `shell`: its words before the host, for lines to try by hand.
SshFailure ssh_failure(int exit_status, std::string_view standard_error, const Host& host,
                       const std::string& shell = "ssh");

// The key that the host showed, from the output of `ssh -v`: "ssh-ed25519 SHA256:…"; empty: none seen. With a
// jump host the last one, the destination's.
std::string host_key_seen(std::string_view standard_error);

}  // namespace dtrun::cmd
