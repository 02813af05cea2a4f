#include "agent/core/environment.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "agent/text/python_template.h"
#include "proto/core/contract.h"

namespace dtrun::agent {
namespace {

class Variables {
 public:
  explicit Variables(std::vector<std::string> entries) : entries_(std::move(entries)) {}

  const std::string* find(std::string_view name) const {
    auto it = locate(name);
    return it == entries_.end() ? nullptr : &*it;
  }

  void set(const std::string& name, const std::string& value) {
    erase(name);
    entries_.push_back(name + "=" + value);
  }
  void set(const std::string& name, std::int64_t value) { set(name, std::to_string(value)); }

  void set_if_absent(const std::string& name, const std::string& value) {
    if (find(name) == nullptr) set(name, value);
  }

  void erase(std::string_view name) {
    std::erase_if(entries_, [&](const std::string& entry) { return names(entry, name); });
  }

  std::vector<std::string> take() { return std::move(entries_); }

 private:
  static bool names(std::string_view entry, std::string_view name) {
    return entry.size() > name.size() && entry[name.size()] == '=' && entry.substr(0, name.size()) == name;
  }
  std::vector<std::string>::const_iterator locate(std::string_view name) const {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&](const auto& entry) { return names(entry, name); });
  }

  std::vector<std::string> entries_;
};

void set_ranks(const WorkerSetting& setting, const Assignment& assignment, int local_rank, Variables* env) {
  const rendezvous::Node& here = assignment.node;
  env->set("RANK", here.first_rank + local_rank);
  env->set("LOCAL_RANK", setting.first_local_rank + local_rank);
  env->set("WORLD_SIZE", assignment.world_size);
  env->set("LOCAL_WORLD_SIZE", std::max(here.nproc, setting.local_world_size));
  env->set("GROUP_RANK", assignment.group_rank);
  env->set("GROUP_WORLD_SIZE", assignment.node_count);
  env->set("ROLE_RANK", here.first_rank + local_rank);  // one role per job
  env->set("ROLE_WORLD_SIZE", assignment.world_size);
}

void set_job(const WorkerSetting& setting, const Assignment& assignment, Variables* env) {
  env->set("ROLE_NAME", setting.role);
  env->set("TORCHELASTIC_RESTART_COUNT", assignment.restart_count);
  env->set("TORCHELASTIC_MAX_RESTARTS", setting.max_restarts);
  env->set("TORCHELASTIC_RUN_ID", setting.run_id);
  env->set("TORCHELASTIC_USE_AGENT_STORE", "False");
  env->set_if_absent("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  env->set_if_absent("OMP_NUM_THREADS", std::to_string(setting.omp_num_threads));
  const std::string& chosen = setting.master_address;
  env->set("MASTER_ADDR", chosen.empty() ? assignment.master_address : chosen);
  env->set("MASTER_PORT", assignment.master_port);
  env->set(kEnvRunId, setting.run_id);
  env->set(kEnvGeneration, assignment.generation);
  env->set(kEnvNode, assignment.group_rank);
  env->set(kEnvRestartCount, assignment.restart_count);
}

// Shows the worker only its own GPU of those that this agent may use; it becomes device 0.
void set_virtual_local_rank(int local_rank, Variables* env) {
  static constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";
  std::string device = std::to_string(local_rank);
  if (const std::string* visible = env->find(kVisible)) {
    std::istringstream devices(visible->substr(std::string_view(kVisible).size() + 1));
    for (int i = 0; i <= local_rank; ++i) std::getline(devices, device, ',');
  }
  env->set(kVisible, device);
  env->set("LOCAL_RANK", 0);
}

}  // namespace

std::vector<std::string> worker_environment(const std::vector<std::string>& inherited,
                                            const WorkerSetting& setting, const Assignment& assignment,
                                            const WorkerNumbers& worker, int control_fd,
                                            const std::string& error_file) {
  Variables env(inherited);
  set_ranks(setting, assignment, worker.local_rank, &env);
  set_job(setting, assignment, &env);
  if (setting.gpus_by_address) env.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  if (setting.virtual_local_rank) set_virtual_local_rank(setting.first_local_rank + worker.local_rank, &env);
  env.erase("TORCHELASTIC_ERROR_FILE");
  if (!error_file.empty()) env.set("TORCHELASTIC_ERROR_FILE", error_file);
  env.erase(kEnvControlFd);
  if (control_fd >= 0) env.set(kEnvControlFd, control_fd);
  std::string tag = worker_tag(setting.tag, worker.serial);
  if (const std::string* outer = env.find(kEnvProcessTag)) {
    tag = outer->substr(std::string_view(kEnvProcessTag).size() + 1) + tag;
  }
  env.set(kEnvProcessTag, tag);
  return env.take();
}

std::string worker_tag(const std::string& agent_tag, int serial) {
  return agent_tag + "." + std::to_string(serial) + ";";
}

std::vector<std::string> worker_arguments(std::vector<std::string> argv, int local_rank) {
  for (std::size_t i = 1; i < argv.size(); ++i) {
    std::string filled;
    for (const TemplatePiece& piece : template_pieces(argv[i])) {
      filled += piece.name == "local_rank" ? std::to_string(local_rank) : std::string(piece.text);
    }
    argv[i] = std::move(filled);
  }
  return argv;
}

}  // namespace dtrun::agent
