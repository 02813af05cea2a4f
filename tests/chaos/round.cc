#include "tests/chaos/round.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"

namespace dtrun::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

const std::string kConfig = DTRUN_SOURCE_DIR "/configs/fashion_mnist_convnet.json";
constexpr int kWorkersEach = 2;  // of an agent
constexpr char kMark[] = "DTRUN_CHAOS_ROUND_NAME=";
constexpr milliseconds kLimit{120000};   // of a round; agents wait 10 s for a lost coordinator alone
constexpr milliseconds kCleanUp{20000};  // by the watchdog, on a busy machine

// Live processes that inherited `mark` ("NAME=value") in their environment, with their command lines.
std::vector<std::pair<pid_t, std::string>> marked(const std::string& mark) {
  std::vector<std::pair<pid_t, std::string>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || read_if_there(entry.path() / "environ").find(mark + '\0') == std::string::npos) continue;
    if (is_alive(pid)) found.emplace_back(pid, read_if_there(entry.path() / "comm"));
  }
  return found;
}

std::vector<std::string> program(const Plan& plan, const Folder& folder) {
  if (!plan.builtin)
    return {"--", DTRUN_BIN_DIR "/../tests/chaos_worker", "work", std::to_string(plan.work_ms),
            folder / "go"};
  return {kConfig, "output_dir=" + (folder / "output").string(), "train.max_steps=40", "train.save_steps=10",
          "train.eval_steps=0"};
}

class Round {
 public:
  Round(const Plan& plan, const std::string& name) : plan_(plan), mark_(kMark + name), port_(free_port()) {}

  Played play(const std::string& expected_model);

 private:
  struct Agent {
    std::unique_ptr<Process> process;
    bool killed = false, replacement = false;
    int code = -1;
  };

  void start_store();
  void wait_until_hosted();
  void start_agent(bool replacement = false);
  void look_for_agent();
  void look_for_workers();
  std::vector<pid_t> workers() const;
  void strike();
  void strike_worker();
  void bring_back();
  void wait_for_all();
  void judge_codes();
  void judge_what_is_left(const std::string& expected_model);
  static int finished_workers(const Agent& agent);
  bool killed_was_done() const;
  bool succeeded() const;

  void wrong(const std::string& what) { wrong_ += what + "\n"; }
  std::string all_output() const;

  const Plan plan_;
  const std::string mark_;
  const int port_;
  const Folder folder_;
  std::vector<Agent> agents_;
  std::vector<std::unique_ptr<Process>> stores_;
  std::string wrong_;
  Played played_;
};

void Round::start_store() {
  const std::vector<std::string> argv = {kDtrun,      "store",  "--bind",
                                         "127.0.0.1", "--port", std::to_string(port_)};
  stores_.push_back(std::make_unique<Process>(argv, std::vector{mark_}));
  wait_until_hosted();
}

// So that the coordinator's host is known.
void Round::wait_until_hosted() {
  if (!eventually([&] { return is_listening(port_); })) wrong("nobody listens on the endpoint");
}

void Round::start_agent(bool replacement) {
  std::vector<std::string> argv = {kDtrun,
                                   "--max_restarts",
                                   std::to_string(plan_.max_restarts),
                                   "--nproc_per_node",
                                   std::to_string(kWorkersEach),
                                   "--shutdown_timeout",
                                   "1"};
  if (plan_.shape == Shape::kStandalone) {
    argv.push_back("--standalone");
  } else {
    const std::string nodes = plan_.shape == Shape::kElastic ? "1:2" : "2";
    argv.insert(argv.end(),
                {"--nnodes", nodes, "--rdzv_endpoint", "127.0.0.1:" + std::to_string(port_), "--rdzv_id",
                 "chaos", "--rdzv_conf", "join_timeout=20,last_call_timeout=1,read_timeout=10"});
    soon(std::chrono::seconds(10));
  }
  const std::vector<std::string> what = program(plan_, folder_);
  argv.insert(argv.end(), what.begin(), what.end());
  agents_.push_back({std::make_unique<Process>(argv, std::vector{mark_}), false, replacement});
}

// Finds the agent that was started last, unless it ends before.
void Round::look_for_agent() {
  const pid_t agent = agents_.back().process->pid();
  bool found = false;
  const bool answered = eventually([&] {
    for (const auto& [pid, comm] : marked(mark_)) found = found || pid == agent;
    return found || !is_alive(agent);
  });
  if (!answered) wrong("an agent runs but is not found by its mark");
  played_.saw_agents = found && (agents_.size() == 1 || played_.saw_agents);
}

void Round::look_for_workers() {
  const bool answered = eventually([&] {
    played_.saw_workers = !workers().empty();
    const auto ended = [](const Agent& agent) { return !is_alive(agent.process->pid()); };
    return played_.saw_workers || std::any_of(agents_.begin(), agents_.end(), ended);
  });
  if (!answered) wrong("agents run but their workers are not found by their mark");
}

std::vector<pid_t> Round::workers() const {
  const std::string name = plan_.builtin ? "dtrun-worker\n" : "chaos_worker\n";
  std::vector<pid_t> workers;
  for (const auto& [pid, comm] : marked(mark_)) {
    // Leaders of their groups are the workers; the rest are their children.
    if (comm == name && getpgid(pid) == pid) workers.push_back(pid);
  }
  std::sort(workers.begin(), workers.end());
  return workers;
}

void Round::strike_worker() {
  const std::vector<pid_t> found = workers();
  if (!found.empty()) kill(found[static_cast<std::size_t>(plan_.which_worker) % found.size()], SIGKILL);
}

void Round::strike() {
  switch (plan_.victim) {
    case Victim::kWorker:
      return strike_worker();
    case Victim::kFirstAgent:
    case Victim::kSecondAgent: {
      Agent& agent = agents_[plan_.victim == Victim::kFirstAgent ? 0 : 1];
      agent.killed = true;
      return agent.process->signal(SIGKILL);
    }
    case Victim::kStore:
      return stores_.front()->signal(SIGKILL);
  }
}

void Round::bring_back() {
  std::this_thread::sleep_for(milliseconds(plan_.return_after_ms));
  if (plan_.victim == Victim::kStore) {
    stores_.front()->wait();  // its port is free
    start_store();
  } else {
    start_agent(true);
  }
}

void Round::wait_for_all() {
  for (Agent& agent : agents_) {
    agent.code = agent.process->wait(kLimit);
    if (agent.code == -1) wrong("an agent did not end within " + std::to_string(kLimit.count()) + " ms");
  }
  if (stores_.empty()) return;
  stores_.back()->signal(SIGTERM);
  stores_.back()->wait(kCleanUp);
}

void Round::judge_codes() {
  const std::set<int> allowed = allowed_codes(plan_);
  std::set<int> seen;
  for (const Agent& agent : agents_) {
    // A kill after the end of its work leaves no job to return to, or the others went on without it.
    const bool may_be_late = plan_.shape == Shape::kElastic || plan_.builtin || killed_was_done();
    if (agent.replacement && (agent.code == 0 || (agent.code == 69 && may_be_late))) continue;
    if (agent.killed && (agent.code == 0 || agent.code == 128 + SIGKILL)) continue;
    seen.insert(agent.code);
    if (!allowed.contains(agent.code)) wrong("an agent ended with " + std::to_string(agent.code));
  }
  for (const Agent& agent : agents_)
    if (agent.process->err().find("SIGKILL") != std::string::npos) played_.met_worker = true;
  if (plan_.victim == Victim::kWorker && seen.size() > 1) wrong("the agents ended with different codes");
}

// Those of an agent's workers that said that they were done.
int Round::finished_workers(const Agent& agent) {
  static const std::string kDone = " done\n";
  const std::string out = agent.process->out();
  int finished = 0;
  for (std::size_t at = out.find(kDone); at != std::string::npos; at = out.find(kDone, at + 1)) ++finished;
  return finished;
}

bool Round::killed_was_done() const {
  return std::ranges::any_of(
      agents_, [](const Agent& agent) { return agent.killed && finished_workers(agent) == kWorkersEach; });
}

bool Round::succeeded() const {
  return std::any_of(agents_.begin(), agents_.end(), [](const Agent& agent) { return agent.code == 0; });
}

void Round::judge_what_is_left(const std::string& expected_model) {
  if (!eventually([&] { return marked(mark_).empty(); }, kCleanUp)) {
    for (const auto& [pid, comm] : marked(mark_)) {
      wrong("still running: " + std::to_string(pid) + " " + comm);
      kill(pid, SIGKILL);
    }
  }
  if (!succeeded()) return;
  if (plan_.builtin) {
    if (read_if_there(folder_.path() / "output/model.safetensors") != expected_model)
      wrong("the model has other bytes");
    return;
  }
  for (const Agent& agent : agents_) {
    // A replacement may come when the work is nearly done, and see the others end.
    if (agent.code != 0 || agent.replacement) continue;
    if (finished_workers(agent) < kWorkersEach)
      wrong("an agent ended with 0 but not both of its workers said that they were done");
  }
}

std::string Round::all_output() const {
  std::string text;
  int number = 0;
  for (const Agent& agent : agents_) {
    text += "--- agent " + std::to_string(++number) + (agent.killed ? " (killed)" : "") + " ended with " +
            std::to_string(agent.code) + "\n" + agent.process->err();
    std::string out = agent.process->out();
    if (out.size() > 1000) out = "…" + out.substr(out.size() - 1000);
    text += out;
  }
  for (const auto& store : stores_) text += "--- store\n" + store->err();
  return text;
}

Played Round::play(const std::string& expected_model) {
  if (plan_.shape == Shape::kStore) start_store();
  start_agent();
  auto start = Clock::now();
  look_for_agent();
  if (plan_.agents() == 2) {
    wait_until_hosted();
    start_agent();
    look_for_agent();
  }
  if (plan_.victim == Victim::kWorker) {
    look_for_workers();
    start = Clock::now();
  }
  write_text(folder_ / "go", "");  // no program ends before it is found
  std::this_thread::sleep_until(start + milliseconds(plan_.kill_after_ms));
  strike();
  if (plan_.returns) bring_back();
  wait_for_all();
  judge_codes();
  judge_what_is_left(expected_model);
  if (!wrong_.empty()) played_.wrong = wrong_ + all_output();
  return played_;
}

}  // namespace

Played play(const Plan& plan, const std::string& name, const std::string& expected_model) {
  return Round(plan, name).play(expected_model);
}

bool has_trainer_data() { return std::filesystem::exists("/usr/share/datasets/fashion-mnist"); }

std::string calm_model() {
  const Folder folder;
  Plan plan;
  plan.builtin = true;
  std::vector<std::string> argv = {kDtrun, "--standalone", "--nproc_per_node", "1"};
  const std::vector<std::string> what = program(plan, folder);
  argv.insert(argv.end(), what.begin(), what.end());
  Process dtrun(argv);
  if (dtrun.wait(kLimit) != 0) throw std::runtime_error("a calm run failed:\n" + dtrun.err());
  return read_if_there(folder.path() / "output/model.safetensors");
}

}  // namespace dtrun::test
