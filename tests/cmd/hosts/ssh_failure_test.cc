// Real output of OpenSSH 9.2 and shells that were made to fail in each of these ways (lines end in CR LF).
#include "cmd/hosts/ssh_failure.h"

#include <doctest/doctest.h>

namespace dtrun::cmd::ssh_failure_test {
namespace {

const Host kHost = {.destination = "ada@node3"};

constexpr const char* kChanged =
    "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r\n"
    "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
    "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r\n"
    "IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r\n"
    "The fingerprint for the ED25519 key sent by the remote host is\r\n"
    "SHA256:G6rP3QTF2tTWDig3omzg33L6oY1h6owfDi2uTshJ6Eg.\r\n"
    "Offending ED25519 key in /home/ada/.ssh/known_hosts:1\r\n"
    "Host key for [127.0.0.1]:42201 has changed and you have requested strict checking.\r\n"
    "Host key verification failed.\r\n";

SshFailure of(int exit_status, std::string_view text) { return ssh_failure(exit_status, text, kHost); }

void check(int exit_status, const char* text, SshFailure::FailureKind kind, const char* what) {
  CAPTURE(text);
  const auto failure = of(exit_status, text);
  CHECK(failure.kind == kind);
  CHECK(failure.what == what);
  CHECK(failure.remedy.empty() == (kind == SshFailure::kOther));
}

}  // namespace

TEST_CASE("a full sshd, or one that went away, is worth another try") {
  check(255,
        "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 10.0.0.7 port "
        "22\r\n",
        SshFailure::kRefusedLogin, "kex_exchange_identification: Connection closed by remote host");
  check(255,
        "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 10.0.0.7 port "
        "22\r\n",
        SshFailure::kRefusedLogin, "kex_exchange_identification: read: Connection reset by peer");
  check(255, "ssh_exchange_identification: Connection closed by remote host\r\n", SshFailure::kRefusedLogin,
        "ssh_exchange_identification: Connection closed by remote host");
  check(255, "Connection closed by 10.0.0.7 port 22\r\n", SshFailure::kRefusedLogin,
        "Connection closed by 10.0.0.7 port 22");
  check(255, "Connection to node3 closed by remote host.\r\n", SshFailure::kRefusedLogin,
        "Connection to node3 closed by remote host.");
  check(255, "client_loop: send disconnect: Broken pipe\r\n", SshFailure::kRefusedLogin,
        "client_loop: send disconnect: Broken pipe");
}

TEST_CASE("-v hides nothing and adds no cause") {
  check(255,
        "OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL 3.0.19 27 Jan 2026\r\n"
        "debug1: connect to address 10.0.0.7 port 22: Connection timed out\r\n"
        "debug1: Could not resolve hostname for nothing\r\n"
        "debug1: kex_exchange_identification: banner line 0: Exceeded MaxStartups\r\n"
        "kex_exchange_identification: Connection closed by remote host\r\n"
        "Connection closed by 10.0.0.7 port 22\r\n",
        SshFailure::kRefusedLogin, "kex_exchange_identification: Connection closed by remote host");
}

TEST_CASE("an unknown key is shown, with both ways to accept it") {
  check(255, "Host key verification failed.\r\n", SshFailure::kUnknownHostKey,
        "Host key verification failed.");
  check(255,
        "No ED25519 host key is known for node3 and you have requested strict checking.\r\n"
        "Host key verification failed.\r\n",
        SshFailure::kUnknownHostKey,
        "No ED25519 host key is known for node3 and you have requested strict checking.");
  CHECK(of(255, "Host key verification failed.\r\n").remedy ==
        "--accept_new_host_keys accepts hosts that were never seen before, or log in once by hand: ssh "
        "ada@node3");
  CHECK(of(255, "debug1: Server host key: ssh-ed25519 SHA256:abc\r\nHost key verification failed.\r\n")
            .remedy.starts_with("it shows ssh-ed25519 SHA256:abc: --accept_new_host_keys"));
}

TEST_CASE("a changed key is for the administrator; no option of dtrun accepts it") {
  const auto failure = of(255, kChanged);
  CHECK(failure.kind == SshFailure::kChangedHostKey);
  CHECK(failure.what == "Host key for [127.0.0.1]:42201 has changed and you have requested strict checking.");
  CHECK(failure.remedy ==
        "ask its administrator whether the key was changed; only then remove the old one: ssh-keygen -R "
        "'[127.0.0.1]:42201'");
  CHECK(of(255, "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\nHost key verification failed.\r\n")
            .remedy.ends_with("ssh-keygen -R 'node3'"));
  CHECK(of(255, "Host key for x'; reboot;' has changed and you have requested strict checking.\r\n")
            .remedy.ends_with("ssh-keygen -R 'node3'"));
  CHECK(of(255,
           "@       WARNING: REVOKED HOST KEY DETECTED!               @\r\nHost key verification failed.\r\n")
            .kind == SshFailure::kChangedHostKey);
}

TEST_CASE("logins that would need a prompt") {
  check(255, "ada@10.0.0.7: Permission denied (publickey).\r\n", SshFailure::kPermission,
        "ada@10.0.0.7: Permission denied (publickey).");
  check(255,
        "Warning: Identity file k not accessible: No such file or directory.\nada@h: Permission denied "
        "(publickey).\r\n",
        SshFailure::kPermission, "ada@h: Permission denied (publickey).");
  check(255,
        "Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures\r\n"
        "Disconnected from 10.0.0.7 port 22\r\n",
        SshFailure::kPermission,
        "Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures");
}

TEST_CASE("a login to try by hand has the words of --ssh") {
  const auto failure = ssh_failure(255, "ada@h: Permission denied (publickey).\r\n", kHost, "ssh -p 2222");
  CHECK(failure.remedy.starts_with(
      "a login without a prompt must work: ssh -p 2222 -o BatchMode=yes ada@node3 true"));
}

TEST_CASE("names and ways that lead nowhere") {
  check(255, "ssh: Could not resolve hostname node3: Name or service not known\r\n", SshFailure::kUnknownHost,
        "ssh: Could not resolve hostname node3: Name or service not known");
  check(255, "ssh: Could not resolve hostname node3: Temporary failure in name resolution\r\n",
        SshFailure::kUnknownHost,
        "ssh: Could not resolve hostname node3: Temporary failure in name resolution");
  for (const char* reason : {"Connection refused", "Connection timed out", "No route to host",
                             "Network is unreachable", "Connection reset by peer", "failure"}) {
    const auto line = "ssh: connect to host node3 port 22: " + std::string(reason);
    check(255, (line + "\r\n").c_str(), SshFailure::kUnreachable, line.c_str());
  }
  check(255, "Connection timed out during banner exchange\r\nConnection to 10.0.0.7 port 22 timed out\r\n",
        SshFailure::kUnreachable, "Connection timed out during banner exchange");
  check(255, "Timeout, server node3 not responding.\r\n", SshFailure::kUnreachable,
        "Timeout, server node3 not responding.");
}

TEST_CASE("with a jump host its ssh's words count, not the connection that broke thereby") {
  const std::string broken =
      "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by UNKNOWN port "
      "65535\r\n";
  const auto kind = [&](const std::string& text) { return of(255, text + "\r\n" + broken).kind; };
  CHECK(kind("channel 0: open failed: connect failed: Connection refused\r\nstdio forwarding failed") ==
        SshFailure::kUnreachable);
  CHECK(
      kind("channel 0: open failed: connect failed: Name or service not known\r\nstdio forwarding failed") ==
      SshFailure::kUnknownHost);
  CHECK(kind("ssh: Could not resolve hostname jump: Name or service not known") == SshFailure::kUnknownHost);
  CHECK(kind("ssh: connect to host jump port 22: Connection refused") == SshFailure::kUnreachable);
  CHECK(kind("ada@jump: Permission denied (publickey).") == SshFailure::kPermission);
  CHECK(kind("channel 0: open failed: administratively prohibited: open failed\r\nstdio forwarding failed") ==
        SshFailure::kOther);
  CHECK(kind("Host key verification failed.") == SshFailure::kUnknownHostKey);
  CHECK(kind("/bin/sh: 1: nc: not found") == SshFailure::kOther);
  CHECK(of(255, broken).kind == SshFailure::kRefusedLogin);
}

TEST_CASE("no dtrun there, in the words of each shell") {
  check(127, "bash: line 1: exec: dtrun: not found\n", SshFailure::kNoDtrun,
        "bash: line 1: exec: dtrun: not found");
  check(127, "zsh:1: command not found: dtrun\n", SshFailure::kNoDtrun, "zsh:1: command not found: dtrun");
  check(127, "fish: Unknown command: dtrun\nfish: \nexec dtrun agent\n     ^~~~~^\n", SshFailure::kNoDtrun,
        "fish: Unknown command: dtrun");
  check(1, "dtrun: Command not found.\n", SshFailure::kNoDtrun, "dtrun: Command not found.");
  check(126, "dash: 1: exec: /opt/dtrun: Permission denied\n", SshFailure::kNoDtrun,
        "dash: 1: exec: /opt/dtrun: Permission denied");
  check(126, "bash: line 1: /opt/dtrun: cannot execute binary file: Exec format error\n",
        SshFailure::kNoDtrun, "bash: line 1: /opt/dtrun: cannot execute binary file: Exec format error");
  check(126, "OCI runtime exec failed: exec: \"dtrun\": executable file not found in $PATH: unknown\n",
        SshFailure::kNoDtrun,
        "OCI runtime exec failed: exec: \"dtrun\": executable file not found in $PATH: unknown");
  check(127, "", SshFailure::kNoDtrun, "exit code 127, and no message");
  check(127, "motd: welcome\nbash: line 3: module: command not found\nbash: exec: dtrun: not found\n",
        SshFailure::kNoDtrun, "bash: exec: dtrun: not found");
}

TEST_CASE("what the far side says is not taken for ssh's own words") {
  check(1, "bash: line 3: module: command not found\n", SshFailure::kOther,
        "bash: line 3: module: command not found");
  check(66, "dtrun: config.json: No such file or directory\n", SshFailure::kOther,
        "dtrun: config.json: No such file or directory");
  check(3, "Permission denied (publickey).\n", SshFailure::kOther, "Permission denied (publickey).");
  check(1, "Error from server (NotFound): pods \"node3\" not found\n", SshFailure::kOther,
        "Error from server (NotFound): pods \"node3\" not found");
}

TEST_CASE("anything else is told by its last line, made fit to print") {
  check(255, "", SshFailure::kOther, "exit code 255, and no message");
  check(0, "Welcome\n\n  \r\n", SshFailure::kOther, "Welcome");
  check(255, "a\n\033[2Jb\x01\n", SshFailure::kOther, "?[2Jb?");
  const std::string umlauts = std::string(297, 'a') + "\u00e4\u00e4";
  check(255, umlauts.c_str(), SshFailure::kOther, (umlauts.substr(0, 299) + "…").c_str());
  check(255, "kex_exchange_identification: banner line contains invalid characters\r\n", SshFailure::kOther,
        "kex_exchange_identification: banner line contains invalid characters");
  check(
      255,
      "Unable to negotiate with 10.0.0.7 port 22: no matching host key type found. Their offer: "
      "ssh-ed25519\r\n",
      SshFailure::kOther,
      "Unable to negotiate with 10.0.0.7 port 22: no matching host key type found. Their offer: ssh-ed25519");
}

TEST_CASE("of the keys that ssh -v shows the last is the destination's") {
  CHECK(host_key_seen("debug1: Server host key: ssh-ed25519 SHA256:jump\r\n"
                      "debug1: x\r\ndebug1: Server host key: ssh-rsa SHA256:node3 \r\nHost key") ==
        "ssh-rsa SHA256:node3");
  CHECK(host_key_seen("debug1: Server host key: ssh-rsa SHA256:x") == "ssh-rsa SHA256:x");
  CHECK(host_key_seen("Server host key: ssh-rsa").empty());
  CHECK(host_key_seen("").empty());
}

TEST_CASE("where there is no room for dtrun, tar's reason is told, not that it failed") {
  const std::string place = "cannot bring dtrun to /home/ada/.cache/dtrun";
  check(73,
        "a warning\ntar: bin/dtrun: Wrote only 3584 of 10240 bytes\ntar: bin/dtrun-worker: Cannot write: No "
        "space left "
        "on device\ntar: Exiting with failure status due to previous errors\ncannot bring dtrun to "
        "/home/ada/.cache/dtrun\n",
        SshFailure::kNoPlace,
        (place + " (tar: bin/dtrun-worker: Cannot write: No space left on device)").c_str());
  check(73,
        "tar: bin/dtrun: Wrote only 3584 of 10240 bytes\ntar: Exiting with failure status due to previous "
        "errors\n"
        "cannot bring dtrun to /home/ada/.cache/dtrun\n",
        SshFailure::kNoPlace, (place + " (tar: bin/dtrun: Wrote only 3584 of 10240 bytes)").c_str());
  check(73,
        "mkdir: cannot create directory '/home/ada/.cache': Read-only file system\ncannot bring dtrun to "
        "/home/ada/.cache/dtrun\n",
        SshFailure::kNoPlace,
        (place + " (mkdir: cannot create directory '/home/ada/.cache': Read-only file system)").c_str());
  check(73, "neither HOME nor XDG_CACHE_HOME is an absolute path: no place for dtrun\n", SshFailure::kNoPlace,
        "neither HOME nor XDG_CACHE_HOME is an absolute path: no place for dtrun");
}

}  // namespace dtrun::cmd::ssh_failure_test
