#include "tests/e2e/ssh/ssh_hosts.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "tests/support/files.h"

namespace dtrun::test {
namespace {

namespace fs = std::filesystem;

const std::string kSshd = "/usr/sbin/sshd";  // it must be started by its whole path
const std::string kUser = "4242";
constexpr int kJump = 251, kLogin = 252;  // their places in the hosts' network
// Beyond the jump host.
const std::string kOutsideJump = "10.78.0.1", kOutsideLogin = "10.78.0.2";

// Runs lines of sh, which see `arguments` as $1, $2, …, in another process's network.
void script(pid_t network, const std::string& lines, const std::vector<std::string>& arguments) {
  output_of(
      joined({"nsenter", "--target", std::to_string(network), "--net", "sh", "-ec", lines, "sh"}, arguments));
}

std::vector<std::string> inside(pid_t host, const std::vector<std::string>& argv) {
  return joined({"nsenter", "--target", std::to_string(host), "--pid", "--net", "--mount", "--uts", "--"},
                argv);
}

fs::path seen(const std::unique_ptr<NamespaceHolder>& host, const fs::path& file) {
  return "/proc/" + std::to_string(host->pid()) + "/root" + file.string();
}

// Every shell reads one of these when sshd starts it; the others must be left alone.
void print_at_start(const fs::path& home) {
  for (const char* file : {".profile", ".bash_profile", ".bashrc", ".zshenv"}) {
    write_text(home / file, "echo Welcome to this host; echo 'a warning' >&2\n");
  }
  write_text(home / ".tcshrc", "echo Welcome to this host\nsh -c 'echo a warning >&2'\n");
}

std::string public_key(const fs::path& key) { return read_text(key.string() + ".pub"); }

// The linker's note (elf(5)): sizes of name and id, its type, its name, the id.
std::string with_another_build_id(std::string program) {
  const std::string note("\4\0\0\0\24\0\0\0\3\0\0\0GNU\0", 16);
  const std::size_t at = program.find(note);
  if (at == std::string::npos) throw std::runtime_error("dtrun has no build id");
  program[at + note.size()] ^= 1;
  return program;
}

std::string link_address(const std::string& address) {
  char text[] = "02:77:00:00:00:00";
  std::snprintf(text + 15, 3, "%02x", std::atoi(address.substr(address.find_last_of(".:") + 1).c_str()));
  return text;
}

void make_key(const fs::path& key) {
  output_of({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key});
}

// $1: the test's folder, $2: this host's files, $3: /usr/local/bin, $4: the user's number.
constexpr const char* kFurnish = R"(
mount --bind "$3" /usr/local/bin
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd /run/test
mount --bind "$1" /run/test
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p "$1"
mount --move /run/test "$1"
mount -t tmpfs -o mode=755 tmpfs /home
mount --bind "$2/passwd" /etc/passwd
mount --bind "$2/hosts" /etc/hosts
cp -r "$2/home" /home/ada
chown -R "$4:$4" /home/ada
chmod -R go= /home/ada
)";

}  // namespace

std::string why_no_ssh_hosts() {
  if (const std::string why = why_no_hosts(); !why.empty()) return why;
  for (const char* tool : {"/usr/sbin/sshd", "/usr/bin/ssh", "/usr/sbin/nft"}) {
    if (access(tool, X_OK) != 0) return std::string(tool) + " is missing (scripts/setup --tests)";
  }
  return "";
}

SshHosts::SshHosts(SshNetwork network)
    : network_(std::move(network)), switch_("switch", ""), login_{"login", "", {}, nullptr} {
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::create_directories(folder_ / "empty");
  fs::create_directory(shared());
  fs::permissions(shared(), fs::perms(01777));
  make_key(folder_ / "user_key");
  for (const char* bridge : {"inside", "outside"}) {
    script(switch_.pid(), R"(ip link add "$1" type bridge; ip link set "$1" up)", {bridge});
  }
  const int count = static_cast<int>(network_.hosts.size());
  for (int i = 0; i < count; ++i) peers_.push_back({name(i), address(i), network_.hosts[i], nullptr});
  if (network_.jump) peers_.push_back({"jump", address(kJump), *network_.jump, nullptr});
  for (Peer& peer : peers_) plug_in(peer);
  plug_in(login_);
  for (const Peer& peer : peers_) acquaint(peer);
  for (const Peer& peer : peers_) furnish(peer);
  furnish(login_);
  for (const Peer& peer : peers_)
    output_of(inside(peer.holder->pid(), {kSshd, "-f", file(peer, "sshd_config")}));
}

std::string SshHosts::address(int host) const {
  return (network_.ipv6 ? "fd77::" : "10.77.0.") + std::to_string(host + 1);
}

// Gives it namespaces and a network.
void SshHosts::plug_in(Peer& peer) const {
  const bool login = &peer == &login_;
  peer.holder = std::make_unique<NamespaceHolder>(
      peer.name, "", login ? NamespaceHolder::Processes::shared : NamespaceHolder::Processes::own);
  const pid_t pid = peer.holder->pid();
  script(pid, "ip link set lo up", {});
  if (network_.docker0 && !login) {
    script(pid, R"(
ip link add docker0 type bridge
ip link add veth0 type veth peer name container
ip link set veth0 master docker0
ip address add 172.17.0.1/16 dev docker0
for interface in docker0 veth0 container; do ip link set $interface up; done)",
           {});
  }
  if (network_.dead_nic && !login) {
    script(pid, R"(
ip link add dead0 type veth peer name wire
ip address add 192.168.7."$1"/24 dev dead0
for interface in dead0 wire; do ip link set $interface up; done)",
           {std::to_string(&peer - peers_.data() + 1)});
  }
  if (!login || !network_.jump) {
    cable(peer, "eth0", "inside", login ? address(kLogin) : peer.address, network_.ipv6 ? "64" : "24");
  }
  if (network_.jump && login) cable(peer, "eth0", "outside", kOutsideLogin, "24");
  if (network_.jump && peer.name == "jump") cable(peer, "eth1", "outside", kOutsideJump, "24");
}

void SshHosts::cable(const Peer& peer, const std::string& interface, const std::string& bridge,
                     const std::string& address, const std::string& prefix) const {
  const std::string pid = std::to_string(peer.holder->pid());
  script(switch_.pid(), R"(
ip link add "$1" type veth peer name "$2" netns "$3"
ip link set "$1" master "$4" up)",
         {peer.name + "-" + interface, interface, pid, bridge});
  const bool ipv6 = address.find(':') != address.npos;
  script(peer.holder->pid(), R"(ip address add "$1" dev "$2" $3; ip link set "$2" up)",
         {address + "/" + prefix, interface, ipv6 ? "nodad" : ""});
  if (bridge == "inside")
    script(peer.holder->pid(), R"(ip link set "$1" address "$2")", {interface, link_address(address)});
}

// All namespaces of a machine share one table of neighbours with room for 1024, but for those that were not
// learned: 32 hosts that reach each other fill it.
void SshHosts::acquaint(const Peer& peer) const {
  std::string lines;
  const auto know = [&](const std::string& address) {
    lines +=
        "neighbour replace " + address + " lladdr " + link_address(address) + " dev eth0 nud permanent\n";
  };
  for (const Peer& other : peers_)
    if (&other != &peer) know(other.address);
  if (!network_.jump) know(address(kLogin));
  const fs::path batch = file(peer, "neighbours");
  fs::create_directories(batch.parent_path());
  write_text(batch, lines);
  script(peer.holder->pid(), R"(ip -batch "$1")", {batch});
}

// Writes what the host has of its own, and puts it into its place.
void SshHosts::furnish(const Peer& peer) const {
  const bool login = &peer == &login_;
  fs::create_directories(file(peer, "home/.ssh"));
  write_text(file(peer, "passwd"),
             "root:x:0:0::/root:/bin/sh\nsshd:x:103:65534::/run/sshd:/usr/sbin/nologin\nada:*:" + kUser +
                 ":" + kUser + "::" + home().string() + ":" + peer.host.shell + "\n");
  write_text(file(peer, "hosts"), names_known_to(peer));
  if (peer.host.prints) print_at_start(file(peer, "home"));
  if (login) {
    fs::copy(folder_ / "user_key", file(peer, "home/.ssh/id_ed25519"));
    std::string known;
    for (const Peer& other : peers_) known += known_host(other, public_key(file(other, "host_key")));
    write_text(file(peer, "home/.ssh/known_hosts"), known);
    write_text(file(peer, "home/.ssh/config"), network_.jump ? "Host node*\n  ProxyJump jump\n" : "");
  } else {
    make_key(file(peer, "host_key"));
    write_text(file(peer, "home/.ssh/authorized_keys"), public_key(folder_ / "user_key"));
    write_text(file(peer, "sshd_config"),
               "HostKey " + file(peer, "host_key").string() +
                   "\nPidFile /run/sshd.pid\nUsePAM no\nUseDNS no\nPasswordAuthentication no\n"
                   "KbdInteractiveAuthentication no\n" +
                   peer.host.sshd);
  }
  output_of({"nsenter", "--target", std::to_string(peer.holder->pid()), "--mount", "sh", "-ec", kFurnish,
             "sh", folder_.path(), file(peer, ""), programs_of(peer), kUser});
}

fs::path SshHosts::programs_of(const Peer& peer) const {
  if (peer.host.dtrun == Installed::kThisBuild) return DTRUN_BIN_DIR;
  if (peer.host.dtrun == Installed::kNothing) return folder_ / "empty";
  const fs::path other = folder_ / "another_build";
  if (fs::create_directory(other)) {
    write_text(other / "dtrun", with_another_build_id(read_text(kDtrun)));
    fs::permissions(other / "dtrun", fs::perms(0755));
    fs::copy(fs::path(DTRUN_BIN_DIR) / "dtrun-worker", other / "dtrun-worker");
  }
  return other;
}

std::string SshHosts::names_known_to(const Peer& peer) const {
  const bool login = &peer == &login_;
  std::string names = "127.0.0.1 localhost\n::1 localhost\n";
  if (network_.name_is_loopback) names += "127.0.1.1 " + peer.name + "\n";
  if (login && network_.jump) return names + kOutsideJump + " jump\n";
  for (const Peer& other : peers_) {
    const bool known = login || peer.name == "jump" || network_.names;
    if (known && !(network_.name_is_loopback && &other == &peer))
      names += other.address + " " + other.name + "\n";
  }
  return names;
}

std::string SshHosts::known_host(const Peer& peer, const std::string& key) const {
  return peer.name + "," + peer.address + " " + key;
}

fs::path SshHosts::file(const Peer& peer, const std::string& name) const {
  return folder_.path() / peer.name / name;
}

std::vector<std::string> SshHosts::at_login(const std::vector<std::string>& argv) const {
  return joined({"nsenter",
                 "--target",
                 std::to_string(login_.holder->pid()),
                 "--net",
                 "--mount",
                 "--uts",
                 "setpriv",
                 "--reuid",
                 kUser,
                 "--regid",
                 kUser,
                 "--clear-groups",
                 "env",
                 "--chdir=" + home().string(),
                 "-u",
                 "SSH_AUTH_SOCK",
                 "-u",
                 "XDG_RUNTIME_DIR",
                 "HOME=" + home().string(),
                 "USER=ada",
                 "LOGNAME=ada",
                 "SHELL=/bin/bash",
                 "PATH=/usr/local/bin:/usr/bin:/bin"},
                argv);
}

std::vector<std::string> SshHosts::on(int host, const std::vector<std::string>& argv) const {
  return inside(peers_[host].holder->pid(), argv);
}

fs::path SshHosts::seen_from_here(int host, const fs::path& file) const {
  return seen(peers_[host].holder, file);
}

fs::path SshHosts::seen_at_login(const fs::path& file) const { return seen(login_.holder, file); }

std::vector<SshHosts::Running> SshHosts::processes(int host) const {
  const auto namespace_of = [](const std::string& pid) {
    std::error_code error;
    return fs::read_symlink("/proc/" + pid + "/ns/pid", error).string();
  };
  const pid_t init = peers_[host].holder->pid();
  const std::string wanted = namespace_of(std::to_string(init));
  std::vector<Running> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == init || namespace_of(std::to_string(pid)) != wanted || !is_alive(pid)) continue;
    std::string command = read_if_there(entry.path() / "cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    if (!command.starts_with("sshd: ") && !command.starts_with(kSshd)) found.push_back({pid, command});
  }
  return found;
}

void SshHosts::set_cable(int host, const std::string& state) const {
  script(switch_.pid(), R"(ip link set "$1" "$2")", {name(host) + "-eth0", state});
}

void SshHosts::black_hole(int host) const {
  script(login_.holder->pid(), "ip neighbour replace \"$1\" lladdr 02:00:00:00:00:01 dev eth0 nud permanent",
         {address(host)});
}

void SshHosts::filter(int from, int to) const {
  script(peers_[to].holder->pid(), R"(
nft add table inet filter
nft add chain inet filter input '{ type filter hook input priority 0; }'
nft add rule inet filter input "$1" saddr "$2" tcp dport 1024-65535 tcp flags '&' '(syn | ack)' == syn drop)",
         {network_.ipv6 ? "ip6" : "ip", address(from)});
}

void SshHosts::stop_sshd(int host) const { output_of(on(host, {"sh", "-c", "kill $(cat /run/sshd.pid)"})); }

void SshHosts::forget_host_key(int host) const { rewrite_known_host(host, ""); }

void SshHosts::change_host_key(int host) const {
  rewrite_known_host(host, known_host(peers_[host], public_key(folder_ / "user_key")));
}

void SshHosts::rewrite_known_host(int host, const std::string& line) const {
  const fs::path file = seen_at_login(home() / ".ssh/known_hosts");
  std::istringstream lines(read_text(file));
  std::string kept;
  for (std::string known; std::getline(lines, known);) {
    if (!known.starts_with(name(host) + ",")) kept += known + "\n";
  }
  write_text(file, kept + line);
}

}  // namespace dtrun::test
