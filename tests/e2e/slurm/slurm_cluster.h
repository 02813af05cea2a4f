// A real Slurm for one test program: a login host with slurmctld and munged, and nodes n1, n2, … with a
// slurmd each. All but the last node are in the partitions "low" and "high", of which the second preempts
// jobs of the first; the last one is "aside". They are network namespaces with names and addresses of their
// own, joined by a bridge; nodes have processes of their own too, so nothing outlives the test. Programs and
// files are shared, as on a cluster with a shared home.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/hosts.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::test {

// Why there can be none on this machine; empty: there can.
std::string why_no_slurm();

class SlurmCluster {
 public:
  // `nodes`: beside the one that is aside. Returns once all are idle. Throws if they are not within half a
  // minute.
  explicit SlurmCluster(int nodes);

  // The command on the login host; its process is the command's, with nothing in between.
  std::vector<std::string> at_login(const std::vector<std::string>& argv) const;
  // The command as root on node n1, n2, …
  std::vector<std::string> on(int node, const std::vector<std::string>& argv) const;

  // The environment for commands.
  std::vector<std::string> environment() const;

  // Runs it on the login host to its end.
  Ended run(const std::vector<std::string>& argv) const { return test::run(at_login(argv), environment()); }
  std::unique_ptr<Process> start(const std::vector<std::string>& argv) const {
    return std::make_unique<Process>(at_login(argv), environment());
  }

  // "COMPLETED", "PENDING", …; empty if Slurm does not know the job (any more).
  std::string state_of(const std::string& job) const;
  // Waits until it is one of `wanted`, for two minutes at most; returns the value then.
  std::string await_state(const std::string& job, const std::set<std::string>& wanted) const;

  // What Slurm says of its jobs and nodes, and the end of its log: for the message of a check that fails.
  std::string words() const;

  // A folder that all hosts have.
  std::filesystem::path shared() const { return folder_ / "shared"; }
  // The processes on a node beside Slurm's own, as command lines.
  std::vector<std::string> processes(int node) const;

 private:
  struct Node {
    std::string name;
    std::unique_ptr<NamespaceHolder> holder;
    std::unique_ptr<Process> daemon;
  };

  void write_configuration(int nodes);
  void plug_in(const NamespaceHolder& holder, const std::string& name, int place) const;
  void start_daemons();

  Folder folder_;
  NamespaceHolder switch_;
  NamespaceHolder login_;
  std::vector<Node> nodes_;
  std::unique_ptr<Process> munged_, slurmctld_;
};

}  // namespace dtrun::test
