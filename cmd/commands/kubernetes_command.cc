#include <filesystem>
#include <string>
#include <utility>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/job_file_options.h"
#include "cmd/job_files/kubernetes.h"
#include "cmd/job_files/pod_values.h"
#include "cmd/options/values.h"
#include "cmd/plan/config_file.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfKubernetes[] = {
    {.name = "image", .placeholder = "IMAGE", .help = "Pod image, with a tag or digest [must be given]"},
    {.name = "name", .placeholder = "NAME", .help = "Objects' name [the config's file name]"},
    kNodesOption,
    {.name = "gpus", .placeholder = "N", .help = "GPUs per pod, with a worker for each [0]"},
    {.name = "cpus", .placeholder = "QUANTITY", .help = "CPU limit per pod, such as 8 or 500m [none]"},
    {.name = "memory", .placeholder = "QUANTITY", .help = "Memory of each pod, such as 16Gi [none]"},
    {.name = "volume",
     .placeholder = "CLAIM=/PATH[:ro]",
     .help = "Volume and its mount path; may be repeated [none]",
     .repeats = true},
    kRestartsOption,
    kOptionOfLauncher<"shutdown_timeout", "110">,
    kColorOption,
    kHelpOption};

using KubernetesOptions = Values<kOptionsOfKubernetes>;

Status read_volumes(const KubernetesOptions& options, KubernetesJob* job) {
  const auto given = options.given("volume");
  if (!given) return {};
  for (const std::string& text : repeated_values(*given)) {
    ASSIGN_OR_RETURN(VolumeMount volume, parse_volume(text));
    job->volumes.push_back(std::move(volume));
  }
  return {};
}

Status read_name(const KubernetesOptions& options, const std::string& config, KubernetesJob* job) {
  const auto given = options.given("name");
  job->name = given ? given->value : name_of_config(config);
  if (fits_as_name(job->name)) return {};
  return usage(quoted(*given) + ": expected up to 52 small letters, digits and '-', a letter first");
}

Status read_image(const KubernetesOptions& options, KubernetesJob* job) {
  const auto given = options.given("image");
  if (!given) return usage("needs --image REGISTRY/NAME:TAG, an image of dtrun (scripts/image makes one)");
  job->image = given->value;
  return check_image(*given);
}

Status read_limits(const KubernetesOptions& options, KubernetesJob* job) {
  const auto cpus = options.given("cpus"), memory = options.given("memory");
  job->cpus = value_of(cpus, "");
  job->memory = value_of(memory, "");
  Status status = cpus ? check_cpus(*cpus) : Status();
  if (status.ok() && memory) status = check_memory(*memory);
  return status.ok() ? read_number(options.given("gpus"), &job->gpus) : status;
}

Status read_options(const KubernetesOptions& options, const worker::LaunchConfig& launch,
                    KubernetesJob* job) {
  const Result<NodeCount> nodes = nodes_of(options.given("nnodes"), launch);
  if (!nodes.ok()) return nodes.status();
  job->nodes = nodes.value();
  ASSIGN_OR_RETURN(job->max_restarts, restarts_of(options.given("max_restarts"), launch));
  job->shutdown_timeout_s = 110;
  Status status = read_image(options, job);
  if (status.ok()) status = read_limits(options, job);
  if (status.ok()) status = read_number(options.given("shutdown_timeout"), &job->shutdown_timeout_s);
  return status.ok() ? read_volumes(options, job) : status;
}

// The volume that the folder lies on: the one that is mounted furthest down. Null: none.
const VolumeMount* volume_of(const std::string& folder, const std::vector<VolumeMount>& volumes) {
  const VolumeMount* found = nullptr;
  for (const VolumeMount& volume : volumes) {
    const std::string within = std::filesystem::path(folder).lexically_relative(volume.path).string();
    const bool is_in_it = !within.empty() && !within.starts_with("..");
    if (is_in_it && (found == nullptr || volume.path.size() > found->path.size())) found = &volume;
  }
  return found;
}

Status check_output(const std::string& output, const std::vector<VolumeMount>& volumes) {
  const VolumeMount* const volume = volume_of(output, volumes);
  if (volume == nullptr) {
    notice("output_dir " + output +
           " is on the pod's own disk, and goes with the pod: --volume CLAIM=/PATH "
           "and output_dir=/PATH/... keep it");
  } else if (volume->read_only) {
    return usage("output_dir " + output + " is on --volume " + volume->claim + "=" + volume->path +
                 ":ro, where pods may only read");
  }
  return {};
}

// Relative paths are relative to dtrun's directory: an empty one in a pod.
void tell_paths_of_here(const worker::JobConfig& config) {
  const std::pair<const char*, std::string> paths[] = {
      {"data.path", config.data.path},
      {"data.tokenizer", config.data.tokenizer.value_or("")},
      {"train.init_from", config.train.init_from.value_or("")},
      {"train.distill_from", config.train.distill_from.value_or("")}};
  for (const auto& [key, path] : paths)
    if (!path.empty() && !path.starts_with("/"))
      notice(std::string(key) + " " + path +
             " is relative to /work, which is empty in a pod: --volume CLAIM=/PATH:ro and " + key +
             "=/PATH/..., or the path in the image");
}

int run_kubernetes(const Invocation& invocation) {
  const KubernetesOptions options{invocation.values};
  const std::vector<std::string> overrides = invocation.from_second_on();
  const Result<ConfigFile> file = read_job_config(invocation.argument, overrides);
  if (!file.ok()) return fail(file.status());
  KubernetesJob job{
      .key = rendezvous::JobKey::random().text(), .config = file.value().text, .overrides = overrides};
  Status status = read_name(options, invocation.argument, &job);
  if (status.ok()) status = read_options(options, file.value().config.launch, &job);
  if (!status.ok()) return fail(status);
  status = check_output(file.value().config.output_dir, job.volumes);
  if (!status.ok()) return fail(status);
  tell_paths_of_here(file.value().config);
  return answer(kubernetes_yaml(job));
}

}  // namespace

constinit const Command kKubernetesCommand{
    .name = "kubernetes",
    .summary = "Write a job's Kubernetes manifests, for kubectl apply",
    .description =
        "Prints a Secret with a new key, a Service, a ConfigMap with CONFIG.json, and an Indexed Job with a "
        "pod for each node. The first pod has the coordinator, under a name that stays when the pod is "
        "replaced.\n\n"
        "  dtrun kubernetes --image registry/dtrun:1 --nnodes 3 CONFIG.json > job.yaml\n"
        "  kubectl apply -f job.yaml\n\n"
        "docs/kubernetes.md tells what the objects do, and how a job goes on when a pod is lost.",
    .argument = "CONFIG.json",
    .second = "[KEY=VALUE]",
    .second_repeats = true,
    .options = kOptionsOfKubernetes,
    .rare = true,
    .run = run_kubernetes};

}  // namespace dtrun::cmd
