#include "tests/e2e/hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace dtrun::test {
namespace {

// In the child: only what may follow a fork in a process with threads.
bool separate(const std::string& name, const std::filesystem::path& directory, bool own_processes) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS) != 0) return false;
  if (sethostname(name.c_str(), name.size()) != 0) return false;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  if (own_processes) {
    signal(SIGCHLD, SIG_IGN);  // an init: nobody waits for what it adopts
    if (mount("proc", "/proc", "proc", 0, nullptr) != 0) return false;
  }
  return directory.empty() || mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=64m") == 0;
}

}  // namespace

NamespaceHolder::NamespaceHolder(const std::string& name, const std::filesystem::path& directory,
                                 Processes processes) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  const bool own_processes = processes == Processes::own;
  // A fork whose child is the first process of its namespace.
  pid_ = static_cast<pid_t>(
      syscall(SYS_clone, SIGCHLD | (own_processes ? CLONE_NEWPID : 0), nullptr, nullptr, nullptr, nullptr));
  if (pid_ == 0) {
    setpgid(0, 0);
    if (!separate(name, directory, own_processes) || write(ready[1], "x", 1) != 1) _exit(1);
    close(ready[0]);
    close(ready[1]);
    for (;;) pause();
  }
  close(ready[1]);
  char byte = 0;
  const bool separated = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  if (!separated) {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    throw std::runtime_error("this machine lets us make no namespaces");
  }
}

NamespaceHolder::~NamespaceHolder() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string why_no_hosts() {
  if (geteuid() != 0) return "network namespaces need root";
  for (const char* tool : {"ip", "nsenter"}) {
    if (run({tool, "-V"}).exit_code != 0) return std::string(tool) + " is missing (scripts/setup --tests)";
  }
  try {
    Hosts(1);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void Switch::plug(pid_t host, const std::string& port, const std::string& address) const {
  in(holder_.pid(),
     {"ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", std::to_string(host)});
  in(holder_.pid(), {"ip", "link", "set", port, "master", "br0", "up"});
  in(host, {"ip", "address", "add", address, "dev", "eth0"});
  for (const char* device : {"lo", "eth0"}) in(host, {"ip", "link", "set", device, "up"});
}

Hosts::Hosts(int count) {
  std::filesystem::create_directory(directory());
  for (int host = 0; host < count; ++host) {
    hosts_.push_back(std::make_unique<NamespaceHolder>(name(host), directory()));
    switch_.plug(hosts_.back()->pid(), port(host), address(host) + "/24");
  }
}

std::vector<std::string> Hosts::on(int host, const std::vector<std::string>& argv) const {
  return joined(
      {"nsenter", "--target", std::to_string(hosts_[host]->pid()), "--net", "--mount", "--uts", "--"}, argv);
}

std::filesystem::path Hosts::seen_from_here(int host, const std::string& file) const {
  return "/proc/" + std::to_string(hosts_[host]->pid()) + "/root" + (directory() / file).string();
}

void Hosts::resize_disk(int host, const std::string& size) const {
  output_of(on(host, {"mount", "-o", "remount,size=" + size, directory()}));
}

}  // namespace dtrun::test
