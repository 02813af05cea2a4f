// The pods of one Indexed Job, made for one test from the manifest that `dtrun kubernetes` writes: each pod
// is a sandbox (namespaces of network, mounts and name) in which dtrun is process 1, with the hostname,
// /etc/hosts, resolv.conf, environment and arguments that the spec gives it. A dnsmasq is the cluster's DNS.
// Not modelled: the image (tests/package/image_test.py has it), the control plane; the test acts as that.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/hosts.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::test {

// Why such pods cannot be made on this machine; empty: they can.
std::string why_no_pods();

class Pods {
 public:
  // `words` are those of `dtrun kubernetes`. output() is an output_dir that all pods see, as a claim would
  // be.
  explicit Pods(const std::vector<std::string>& words);
  ~Pods();

  std::filesystem::path output() const { return folder_.path() / "out"; }

  // A new pod for this index, with a new address, which DNS does not know yet. Returns the address.
  std::string start(int index);
  // Sets the answer of DNS for the pod: these addresses (none: no such name), by turns.
  void publish(int index, const std::vector<std::string>& addresses);

  // dtrun, seen from here. Its pid() is that of its parent, unshare, which ends as it does.
  Process& container(int index) const { return *pods_.at(index).container; }
  pid_t dtrun(int index) const;
  std::vector<pid_t> workers(int index) const { return children_of(dtrun(index), "dtrun-worker"); }

  std::vector<int> indices() const;  // of the existing pods
  std::string said() const;          // the output of all pods

  // As a kubelet does it that is told to delete the pod: SIGTERM, and its network goes once dtrun has ended.
  // Returns dtrun's exit code.
  int stop(int index);
  // As a kubelet does it that has no time: the container's processes, then its network.
  void remove(int index);
  // As a node does it that loses its power.
  void lose(int index);

 private:
  struct Pod {
    std::string port;  // the switch's name for its cable
    std::unique_ptr<NamespaceHolder> sandbox;
    std::unique_ptr<Process> container;
  };

  std::string host_name(int index) const { return name_ + "-" + std::to_string(index); }
  std::string file(const std::string& name, const std::string& text) const;

  Folder folder_;
  Switch switch_;
  NamespaceHolder dns_host_;
  std::unique_ptr<Process> dns_;
  std::string name_;  // of Job and Service
  std::vector<std::string> arguments_;
  std::map<int, Pod> pods_;
  std::map<int, std::vector<std::string>> records_;
  int pods_so_far_ = 0;
};

}  // namespace dtrun::test
