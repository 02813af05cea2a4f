#include "tests/e2e/slurm/slurm_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <stdexcept>

#include "tests/support/files.h"

namespace dtrun::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr int kLoginPlace = 100;

std::string address(int place) { return "10.79.0." + std::to_string(place); }

// $1: the test's folder, $2: nodes, $3: this program's folder for dtrun.
constexpr char kSlurmConf[] = R"(ClusterName=test
SlurmctldHost=login(10.79.0.100)
AuthType=auth/munge
AuthInfo=socket=@DIR@/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation=@DIR@/state
SlurmdSpoolDir=@DIR@/spool-%n
SlurmctldPidFile=@DIR@/slurmctld.pid
SlurmdPidFile=@DIR@/slurmd-%n.pid
SlurmctldLogFile=@DIR@/slurmctld.log
SlurmdLogFile=@DIR@/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
ReturnToService=2
RebootProgram=/bin/false
TopologyPlugin=topology/none
NodeName=n[1-@ALL@] CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=low Nodes=n[1-@NODES@] Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=60 MaxTime=INFINITE
PartitionName=high Nodes=n[1-@NODES@] PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
PartitionName=aside Nodes=n@ALL@ MaxTime=INFINITE
)";

std::string filled(std::string text, const std::string& word, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += value.size())
    text.replace(at, word.size(), value);
  return text;
}

void script(pid_t network, const std::string& lines, const std::vector<std::string>& arguments) {
  output_of(
      joined({"nsenter", "--target", std::to_string(network), "--net", "sh", "-ec", lines, "sh"}, arguments));
}

}  // namespace

std::string why_no_slurm() {
  for (const char* tool : {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged", "/usr/bin/srun"})
    if (access(tool, X_OK) != 0) return std::string(tool) + " is missing (scripts/setup --tests)";
  return why_no_hosts();
}

SlurmCluster::SlurmCluster(int nodes) : switch_("switch", ""), login_("login", "") {
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::create_directory(shared());
  fs::create_directory(folder_ / "state");
  write_configuration(nodes);
  script(switch_.pid(), "ip link add inside type bridge; ip link set inside up", {});
  plug_in(login_, "login", kLoginPlace);
  for (int i = 1; i <= nodes + 1; ++i) {
    const std::string name = "n" + std::to_string(i);
    nodes_.push_back(
        {name, std::make_unique<NamespaceHolder>(name, "", NamespaceHolder::Processes::own), nullptr});
    plug_in(*nodes_.back().holder, name, i);
    fs::create_directory(folder_ / ("spool-" + name));
  }
  start_daemons();
}

void SlurmCluster::write_configuration(int nodes) {
  const std::string conf = filled(kSlurmConf, "@DIR@", folder_.path());
  write_text(folder_ / "slurm.conf",
             filled(filled(conf, "@NODES@", std::to_string(nodes)), "@ALL@", std::to_string(nodes + 1)));
  write_text(folder_ / "cgroup.conf", "CgroupPlugin=cgroup/v1\n");
  write_text(folder_ / "munge.key", std::string(64, 'k'));
  fs::permissions(folder_ / "munge.key", fs::perms(0400));
  std::string hosts = "127.0.0.1 localhost\n" + address(kLoginPlace) + " login\n";
  for (int i = 1; i <= nodes + 1; ++i) hosts += address(i) + " n" + std::to_string(i) + "\n";
  write_text(folder_ / "hosts", hosts);
}

void SlurmCluster::plug_in(const NamespaceHolder& holder, const std::string& name, int place) const {
  script(switch_.pid(), R"(
ip link add "to-$1" type veth peer name eth0 netns "$2"
ip link set "to-$1" master inside up)",
         {name, std::to_string(holder.pid())});
  script(holder.pid(), "ip address add \"$1/24\" dev eth0; ip link set lo up; ip link set eth0 up",
         {address(place)});
  output_of({"nsenter", "--target", std::to_string(holder.pid()), "--mount", "--", "mount", "--bind",
             folder_ / "hosts", "/etc/hosts"});
}

void SlurmCluster::start_daemons() {
  const std::string conf = folder_ / "slurm.conf";
  // The daemons end with this test, however it ends. Those on nodes end with their node.
  const std::vector<std::string> with_us{"setpriv", "--pdeathsig", "KILL", "--"};
  munged_ = std::make_unique<Process>(
      joined(with_us, at_login({"/usr/sbin/munged", "--foreground", "--force", "--num-threads=2",
                                "--key-file=" + (folder_ / "munge.key").string(),
                                "--socket=" + (folder_ / "munge.socket").string(),
                                "--pid-file=" + (folder_ / "munged.pid").string(),
                                "--seed-file=" + (folder_ / "munged.seed").string(),
                                "--log-file=" + (folder_ / "munged.log").string()})));
  if (!eventually([&] { return fs::exists(folder_ / "munge.socket"); }, 10s))
    throw std::runtime_error("munged does not start: " + munged_->err());
  slurmctld_ = std::make_unique<Process>(joined(with_us, at_login({"/usr/sbin/slurmctld", "-D", "-f", conf})),
                                         environment());
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    nodes_[i].daemon = std::make_unique<Process>(
        on(static_cast<int>(i) + 1, {"/usr/sbin/slurmd", "-D", "-N", nodes_[i].name, "-f", conf}),
        environment());
  const std::string count = std::to_string(nodes_.size() - 1);
  const std::string expected = "low* " + count + "\nhigh " + count + "\naside 1\n";
  const auto ready = [&] {
    const Ended told = run({"sinfo", "-h", "-t", "idle", "-o", "%P %D"});
    return told.exit_code == 0 && told.out == expected;
  };
  if (eventually(ready, 30s)) return;
  throw std::runtime_error("Slurm does not start:\n" + run({"sinfo", "-R"}).out + slurmctld_->err() +
                           nodes_.front().daemon->err() + read_if_there(folder_ / "slurmctld.log") +
                           read_if_there(folder_ / "slurmd-n1.log"));
}

std::vector<std::string> SlurmCluster::at_login(const std::vector<std::string>& argv) const {
  return joined({"nsenter", "--target", std::to_string(login_.pid()), "--net", "--mount", "--uts", "--"},
                argv);
}

std::vector<std::string> SlurmCluster::on(int node, const std::vector<std::string>& argv) const {
  const pid_t pid = nodes_[static_cast<std::size_t>(node - 1)].holder->pid();
  return joined({"nsenter", "--target", std::to_string(pid), "--pid", "--net", "--mount", "--uts", "--"},
                argv);
}

std::vector<std::string> SlurmCluster::environment() const {
  return {"SLURM_CONF=" + (folder_ / "slurm.conf").string()};
}

std::string SlurmCluster::state_of(const std::string& job) const {
  const std::string told = run({"scontrol", "show", "job", job}).out, word = "JobState=";
  const std::size_t at = told.find(word);
  if (at == std::string::npos) return "";
  return told.substr(at + word.size(), told.find(' ', at) - at - word.size());
}

std::string SlurmCluster::await_state(const std::string& job, const std::set<std::string>& wanted) const {
  std::string state;
  eventually([&] { return wanted.count(state = state_of(job)) > 0; }, std::chrono::minutes(2));
  return state;
}

std::string SlurmCluster::words() const {
  constexpr std::size_t kLastOfLog = 6000;
  const std::string log = read_if_there(folder_ / "slurmctld.log");
  return "\n" + run({"squeue", "-a", "-t", "all", "-o", "%i %j %P %T %N %S %e %V %r"}).out +
         run({"sinfo", "-N", "-l"}).out + log.substr(log.size() - std::min(log.size(), kLastOfLog));
}

std::vector<std::string> SlurmCluster::processes(int node) const {
  // The first one is the host itself: a fork of the test's program, named as that is.
  const std::set<std::string> hosts_own{"slurmd", "slurmstepd", "ps"};
  std::istringstream lines(test::run(on(node, {"ps", "-e", "-o", "pid=,stat=,comm=,args="})).out);
  std::vector<std::string> found;
  std::string state, name, command;
  for (int pid = 0; lines >> pid >> state >> name && std::getline(lines, command);)
    if (pid != 1 && !state.starts_with("Z") && !hosts_own.contains(name)) found.push_back(command);
  return found;
}

}  // namespace dtrun::test
