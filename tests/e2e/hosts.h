// A small network made for one test: hosts that are network namespaces, each with its own name, address and
// directory, joined by a bridge. They share this machine's programs and processes, but no output file system:
// the directory has one path and, on every host, other contents.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::test {

// Why such a network cannot be made on this machine (not root, no ip, no bridges); empty: it can.
std::string why_no_hosts();

// A process that does nothing but keep its namespaces alive; they end with it, however it ends.
class NamespaceHolder {
 public:
  enum class Processes { shared, own };

  // `name` becomes the host's. `directory` (may be empty) gets a file system of its own. With processes of
  // its own (a PID namespace) the host sees only these, and all of them end with the holder, their init.
  NamespaceHolder(const std::string& name, const std::filesystem::path& directory,
                  Processes processes = Processes::shared);
  ~NamespaceHolder();
  NamespaceHolder(const NamespaceHolder&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// A bridge in a namespace of its own, and the cables in it.
class Switch {
 public:
  Switch() : holder_("switch", "") {
    in(holder_.pid(), {"ip", "link", "add", "br0", "type", "bridge"}), lift("br0");
  }
  // The host gets an eth0 with this address, as "10.77.0.1/24"; `port` is the cable's name at this end, until
  // the host is gone.
  void plug(pid_t host, const std::string& port, const std::string& address) const;
  // Nothing arrives any more, and no error is reported.
  void drop(const std::string& port) const { in(holder_.pid(), {"ip", "link", "set", port, "down"}); }
  void lift(const std::string& port) const { in(holder_.pid(), {"ip", "link", "set", port, "up"}); }

 private:
  static void in(pid_t holder, const std::vector<std::string>& argv) {
    output_of(joined({"nsenter", "--target", std::to_string(holder), "--net", "--"}, argv));
  }

  NamespaceHolder holder_;
};

class Hosts {
 public:
  explicit Hosts(int count);

  // "node0", "node1", …
  static std::string name(int host) { return "node" + std::to_string(host); }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  // The command, to be run on the host; its process is dtrun's, with nothing in between.
  std::vector<std::string> on(int host, const std::vector<std::string>& argv) const;

  // The path that every host sees with contents of its own, and where the test finds those.
  std::filesystem::path directory() const { return shared_path_.path() / "disk"; }
  std::filesystem::path seen_from_here(int host, const std::string& file) const;
  // Limits what the host's directory holds, e.g. "400k".
  void resize_disk(int host, const std::string& size) const;

  // Takes the host's cable out of the switch.
  void cut(int host) const { switch_.drop(port(host)); }
  void mend(int host) const { switch_.lift(port(host)); }

 private:
  static std::string port(int host) { return "port" + std::to_string(host); }

  Folder shared_path_;
  Switch switch_;
  std::vector<std::unique_ptr<NamespaceHolder>> hosts_;
};

}  // namespace dtrun::test
