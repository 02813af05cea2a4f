#include "cmd/hosts/ssh_failure.h"

#include <algorithm>
#include <vector>

#include "cmd/hosts/host_words.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr int kOfSshItself = 255;
constexpr std::size_t kLongestLine = 300;

// ssh's messages that are not the cause.
constexpr std::string_view kAsides[] = {"debug1: ",       "debug2: ",      "debug3: ",      "OpenSSH_",
                                        "Authenticated ", "Transferred: ", "Bytes per ",    "Warning: ",
                                        "** WARNING: ",   "** This ",      "** The server "};

struct KnownMessage {
  std::string_view words;
  SshFailure::FailureKind kind;
};

// Messages of OpenSSH (ssh.c, sshconnect.c, kex.c, packet.c, clientloop.c), the most telling first. The
// message of a jump host's ssh stands before those of ours, which only tell that the connection broke.
constexpr KnownMessage kCauses[] = {
    {"has changed and you have requested strict checking", SshFailure::kChangedHostKey},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", SshFailure::kChangedHostKey},
    {"REVOKED HOST KEY DETECTED", SshFailure::kChangedHostKey},
    {"host key is known for", SshFailure::kUnknownHostKey},
    {"Host key verification failed", SshFailure::kUnknownHostKey},
    {"Permission denied (", SshFailure::kPermission},
    {"Too many authentication failures", SshFailure::kPermission},
    {"Permission denied", SshFailure::kPermission},
    {"Could not resolve hostname", SshFailure::kUnknownHost},
    {"connect failed: Name or service not known", SshFailure::kUnknownHost},
    {"connect failed: Temporary failure in name resolution", SshFailure::kUnknownHost},
    {"connect failed: No address associated with hostname", SshFailure::kUnknownHost},
    {"administratively prohibited", SshFailure::kOther},
    {"ssh: connect to host", SshFailure::kUnreachable},
    {"open failed: connect failed", SshFailure::kUnreachable},
    {"timed out", SshFailure::kUnreachable},
    {"Timeout, server", SshFailure::kUnreachable},
    {"invalid characters", SshFailure::kOther},
    {"not found", SshFailure::kOther},  // of a ProxyCommand
    {"exchange_identification: ", SshFailure::kRefusedLogin},
    {"Connection closed by", SshFailure::kRefusedLogin},
    {"Connection reset by", SshFailure::kRefusedLogin},
    {"closed by remote host", SshFailure::kRefusedLogin},
    {"Broken pipe", SshFailure::kRefusedLogin},
};

bool has(std::string_view line, std::string_view words) { return line.find(words) != line.npos; }

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto words = trimmed(line);
    const auto begins = [&](std::string_view aside) { return words.starts_with(aside); };
    if (!words.empty() && std::ranges::none_of(kAsides, begins)) lines.push_back(words);
  }
  return lines;
}

// The first line with `words`; empty: none.
std::string_view line_with(std::string_view words, const std::vector<std::string_view>& lines) {
  const auto found = std::ranges::find_if(lines, [&](auto line) { return has(line, words); });
  return found == lines.end() ? std::string_view{} : *found;
}

std::string last_line(int exit_status, const std::vector<std::string_view>& lines) {
  return lines.empty() ? describe_exit(exit_status, 0) + ", and no message"
                       : shown(lines.back(), kLongestLine);
}

// ssh passes on the exit status of the shell there. 127 and 126 are POSIX's; tcsh ends with 1 for both, and
// so does kubectl.
bool is_no_dtrun(int exit_status, const std::vector<std::string_view>& lines) {
  if (exit_status == 127 || exit_status == 126) return true;
  return exit_status == 1 && std::ranges::any_of(lines, [](auto line) {
           return has(line, "dtrun") && (has(line, "ommand not found") || has(line, "file not found") ||
                                         has(line, "Permission denied"));
         });
}

// The first line of mkdir or tar that names a cause: tar's last line only says that it failed.
SshFailure no_place(const std::vector<std::string_view>& lines) {
  constexpr std::string_view kReasons[] = {"No space left", "quota",         "Read-only",  "denied",
                                           "too large",     "/output error", "write error"};
  const auto by_tool = [](auto line) { return line.starts_with("tar: ") || line.starts_with("mkdir: "); };
  const auto reason = [&](auto line) {
    return by_tool(line) && std::ranges::any_of(kReasons, [&](auto words) { return has(line, words); });
  };
  auto why = std::ranges::find_if(lines, reason);
  if (why == lines.end()) why = std::ranges::find_if(lines, by_tool);
  std::string what = last_line(kExitCannotCreate, lines);
  if (why != lines.end()) what += " (" + shown(*why, kLongestLine) + ")";
  return {SshFailure::kNoPlace, what, {}};
}

SshFailure without_remedy(int exit_status, const std::vector<std::string_view>& lines) {
  if (is_no_dtrun(exit_status, lines)) {
    const auto told = line_with("dtrun", lines);
    return {
        SshFailure::kNoDtrun, told.empty() ? last_line(exit_status, lines) : shown(told, kLongestLine), {}};
  }
  if (exit_status == kExitCannotCreate) return no_place(lines);
  if (exit_status == kOfSshItself) {
    for (const auto& [words, kind] : kCauses) {
      if (const auto line = line_with(words, lines); !line.empty())
        return {kind, shown(line, kLongestLine), {}};
    }
  }
  return {SshFailure::kOther, last_line(exit_status, lines), {}};
}

// The host's name in known_hosts, which may be an alias or have a port: "[node3]:2222".
std::string known_name(const std::string& what, const Host& host) {
  constexpr std::string_view kBefore = "Host key for ", kAfter = " has changed";
  const auto begin = what.find(kBefore), end = what.find(kAfter);
  if (begin == what.npos || end == what.npos || end < begin + kBefore.size()) return host.name();
  const auto name = what.substr(begin + kBefore.size(), end - begin - kBefore.size());
  return is_destination(name) ? name : host.name();
}

std::string remedy_of(const SshFailure& failure, std::string_view standard_error, const Host& host,
                      const std::string& shell) {
  const auto seen = host_key_seen(standard_error);
  switch (failure.kind) {
    case SshFailure::kRefusedLogin:
      return "raise MaxStartups in sshd_config there, or on the jump host";
    case SshFailure::kUnknownHostKey:
      return (seen.empty() ? "" : "it shows " + seen + ": ") +
             "--accept_new_host_keys accepts hosts that were never seen before, or log in once by hand: " +
             shell + " " + host.destination;
    case SshFailure::kChangedHostKey:
      return "ask its administrator whether the key was changed; only then remove the old one: ssh-keygen -R "
             "'" +
             known_name(failure.what, host) + "'";
    case SshFailure::kPermission:
      return "a login without a prompt must work: " + shell + " -o BatchMode=yes " + host.destination +
             " true (ssh-copy-id; ssh-add for a key with a passphrase)";
    case SshFailure::kUnknownHost:
      return "mend the name in the list of hosts, or give it a HostName in ~/.ssh/config";
    case SshFailure::kUnreachable:
      return "look whether it is up and sshd listens there; Port and ProxyJump belong in ~/.ssh/config";
    case SshFailure::kNoDtrun:
      return "put dtrun into the PATH that logins without a terminal have there";
    case SshFailure::kNoPlace:
      return "make room there, or put dtrun into the PATH that logins without a terminal have there";
    case SshFailure::kOther:
      break;
  }
  return {};
}

}  // namespace

SshFailure ssh_failure(int exit_status, std::string_view standard_error, const Host& host,
                       const std::string& shell) {
  auto failure = without_remedy(exit_status, lines_of(standard_error));
  failure.remedy = remedy_of(failure, standard_error, host, shell);
  return failure;
}

std::string host_key_seen(std::string_view standard_error) {
  constexpr std::string_view kBefore = "debug1: Server host key: ";
  const auto found = standard_error.rfind(kBefore);
  if (found == standard_error.npos) return {};
  const auto rest = standard_error.substr(found + kBefore.size());
  return shown(trimmed(rest.substr(0, rest.find('\n'))));
}

}  // namespace dtrun::cmd
