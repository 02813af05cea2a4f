#include <algorithm>
#include <optional>

#include "cmd/check/core/findings.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr std::int64_t kMebi = 1 << 20;

Finding passed(std::string text) { return {.grade = Grade::kPassed, .text = std::move(text)}; }
Finding warning(std::string text, std::string remedy) {
  return {.grade = Grade::kWarning, .text = std::move(text), .remedy = std::move(remedy)};
}
Finding failed(std::string text, std::string remedy) {
  return {.grade = Grade::kFailed, .text = std::move(text), .remedy = std::move(remedy)};
}
std::string bytes_text(std::int64_t bytes) {
  return in_gibibytes(static_cast<std::uint64_t>(std::max<std::int64_t>(0, bytes)));
}

bool is_loopback_address(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// Without the check's name. Nothing: the check cannot be made here.
using MaybeFinding = std::optional<Finding>;

MaybeFinding plan(const NodeFacts& facts) {
  if (facts.refusal.empty()) return passed("accepted");
  return failed(facts.refusal, "the job would be refused here with this message");
}

MaybeFinding worker(const NodeFacts& facts) {
  if (facts.worker.empty())
    return failed(facts.worker_path + " does not start",
                  "install dtrun as a whole: both programs belong in one folder");
  if (facts.worker == facts.worker_wanted) return passed(facts.worker);
  return failed(facts.worker_path + " is " + facts.worker + ", dtrun wants " + facts.worker_wanted,
                "install both programs of one build");
}

MaybeFinding name_of_host(const NodeFacts& facts) {
  const std::string line = "a line \"ADDRESS " + facts.host + "\" in /etc/hosts, or in the name service";
  if (!facts.name_problem.empty())
    return warning(facts.host + " has no address: " + facts.name_problem, line);
  const std::string meaning = facts.host + " means " + join(facts.means);
  if (std::ranges::all_of(facts.means, is_loopback_address)) {
    if (!facts.has_peers) return passed(meaning + "; other nodes would need more");
    return warning(meaning + " here, which other nodes cannot reach",
                   "programs that bind to the host's name (Gloo, NCCL, MPI) want " + line);
  }
  const bool ours = std::ranges::any_of(facts.means, [&](const std::string& address) {
    return std::ranges::count(facts.own, address) > 0 && !is_loopback_address(address);
  });
  return ours ? passed(meaning) : failed(meaning + ", which is another machine's", line);
}

MaybeFinding route(const NodeFacts& facts) {
  if (!facts.route_problem.empty())
    return failed("no way to " + facts.route_problem, "is the name right, and the network up?");
  if (facts.address.empty()) return std::nullopt;
  return passed(facts.address + (facts.interface.empty() ? "" : " on " + facts.interface) +
                (facts.mtu < 0 ? "" : ", MTU " + std::to_string(facts.mtu)));
}

MaybeFinding endpoint(const NodeFacts& facts) {
  if (facts.listener.empty()) return std::nullopt;
  if (facts.listener == "dtrun") return passed("a dtrun listens on " + facts.endpoint);
  if (facts.listener == "nobody") return passed("no dtrun listens on " + facts.endpoint + " yet");
  return failed(facts.listener, "another port (--rdzv_endpoint HOST:PORT), or the key of the dtrun there");
}

MaybeFinding open_files(const NodeFacts& facts) {
  const std::string raise = "ulimit -n " + std::to_string(facts.files_wanted) +
                            ", after the hard limit; dtrun raises the soft one itself";
  if (!facts.files_problem.empty()) return failed(facts.files_problem, raise);
  if (facts.files < 0) return std::nullopt;
  const std::string text = "limit is " + std::to_string(facts.files);
  if (facts.files >= facts.files_wanted) return passed(text);
  return warning(text + ", this job's nodes may want " + std::to_string(facts.files_wanted), raise);
}

MaybeFinding shm(const NodeFacts& facts) {
  return facts.shm_size < 0 ? std::nullopt : MaybeFinding(shared_memory(facts));
}

MaybeFinding cpus(const NodeFacts& facts) {
  const int wanted = facts.workers * facts.lanes;
  const std::string job = counted(facts.workers, "worker") + " x " + counted(facts.lanes, "lane");
  if (facts.quota >= 0 && facts.quota < wanted)
    return warning(facts.quota_by + " gives " + decimals(facts.quota, 1) + " CPUs' time for " + job,
                   "a higher quota, or fewer lanes (--lanes)");
  if (facts.cpus < wanted)
    return warning(counted(facts.cpus, "CPU") + " may be used, by " + job,
                   "fewer workers or lanes, or a wider CPU set");
  return passed(counted(facts.cpus, "CPU") + " for " + job);
}

MaybeFinding output(const NodeFacts& facts) {
  constexpr std::int64_t kWanted = 3;  // the newest, the one before, the one that is being written
  if (facts.output_dir.empty()) return std::nullopt;
  const std::string left = facts.output_dir + " has " + bytes_text(facts.free) + " free";
  if (facts.free >= std::max(kMebi, kWanted * facts.checkpoint)) return passed(left);
  return failed(left + ", three checkpoints need " + bytes_text(kWanted * facts.checkpoint),
                "make room, or another output_dir");
}

MaybeFinding stacks(const NodeFacts& facts) {
  if (facts.reads_stacks) return passed("of workers that hang can be read");
  return warning("of workers that hang cannot be read", "sysctl kernel.yama.ptrace_scope=1");
}

MaybeFinding gpus(const NodeFacts& facts) {
  if (facts.gpus.empty() && facts.gpu_problem.empty()) return std::nullopt;
  if (facts.gpus.empty())
    return failed(facts.gpu_problem, "nvidia-smi; the driver's module may not fit its library: reboot");
  if (const auto lost = std::ranges::find(facts.gpus, ""); lost != facts.gpus.end())
    return failed("GPU " + std::to_string(lost - facts.gpus.begin()) + " does not answer",
                  "nvidia-smi -r, or reboot the node");
  if (!facts.gpu_use.empty())
    return warning(join(facts.gpu_use, "; "), "end them, or leave it out with CUDA_VISIBLE_DEVICES");
  return passed(counted(std::ssize(facts.gpus), "GPU") + " (" + facts.gpus.front() + "), driver " +
                facts.driver);
}

struct NodeCheck {
  const char* name;
  MaybeFinding (*look)(const NodeFacts&);
};
constexpr NodeCheck kChecks[] = {{"plan", plan},         {"worker", worker},     {"host name", name_of_host},
                                 {"route", route},       {"endpoint", endpoint}, {"open files", open_files},
                                 {"shared memory", shm}, {"CPUs", cpus},         {"output_dir", output},
                                 {"stacks", stacks},     {"GPUs", gpus}};

}  // namespace

std::vector<Finding> findings_of(const NodeFacts& facts) {
  std::vector<Finding> findings;
  for (const NodeCheck& check : kChecks)
    if (MaybeFinding found = check.look(facts)) {
      found->check = check.name;
      findings.push_back(std::move(*found));
    }
  return findings;
}

Finding shared_memory(const NodeFacts& facts) {
  constexpr std::int64_t kEnough = 128 * kMebi;  // a container has 64 if nobody asks for more
  std::string text = "/dev/shm has " + std::to_string(facts.shm_size >> 20) + " MB";
  if (!facts.shares_memory || facts.shm_size >= kEnough) return passed(std::move(text));
  return warning(text + ", where PyTorch and NCCL share memory: workers may end with SIGBUS",
                 "docker --shm-size, in a pod an emptyDir with medium: Memory");
}

}  // namespace dtrun::cmd
