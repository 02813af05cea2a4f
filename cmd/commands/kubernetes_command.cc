#include "cmd/commands/kubernetes_command.h"

#include <filesystem>
#include <string>
#include <utility>

#include "cmd/commands/answer.h"
#include "cmd/commands/job_config.h"
#include "cmd/job_files/kubernetes.h"
#include "cmd/options/values.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfKubernetes[] = {
    {.name = "image", .placeholder = "IMAGE", .help = "Of the pods; its entrypoint is dtrun [dtrun]"},
    {.name = "name", .placeholder = "NAME", .help = "Of all objects [the config's file name]"},
    {.name = "nnodes", .placeholder = "N|MIN:MAX", .help = "Pods, or their range [launch.nnodes, else 1]"},
    {.name = "gpus", .placeholder = "N", .help = "GPUs of each pod, with a worker for each [0]"},
    {.name = "cpus", .placeholder = "QUANTITY", .help = "Limit of each pod, such as 8 or 500m [none]"},
    {.name = "memory", .placeholder = "QUANTITY", .help = "Limit of each pod, such as 16Gi [none]"},
    {.name = "volume",
     .placeholder = "CLAIM=/PATH",
     .help = "A volume, and where pods see it; may be given several times [none]",
     .repeats = true},
    {.name = "max_restarts",
     .placeholder = "N",
     .help = "Restarts after failures [launch.max_restarts, else 10]"},
    {.name = "shutdown_timeout", .placeholder = "SECONDS", .help = "Grace for a pod's workers [110]"},
    kColorOption,
    kHelpOption};

using KubernetesOptions = Values<kOptionsOfKubernetes>;

Status read_volumes(const KubernetesOptions& options, KubernetesJob* job) {
  const auto given = options.given("volume");
  if (!given) return {};
  for (const std::string& text : repeated_values(*given)) {
    Result<VolumeMount> volume = parse_volume(text);
    if (!volume.ok()) return volume.status();
    job->volumes.push_back(std::move(volume).value());
  }
  return {};
}

Status read_name(const KubernetesOptions& options, const std::string& config, KubernetesJob* job) {
  const auto given = options.given("name");
  job->name = given ? given->value : name_of_config(config);
  if (fits_as_name(job->name)) return {};
  return usage(quoted(*given) + ": expected up to 52 small letters, digits and '-', a letter first");
}

Status read_options(const KubernetesOptions& options, const worker::LaunchConfig& launch,
                    KubernetesJob* job) {
  const Given from_config{.value = launch.nnodes.value_or("1"), .source = "launch.nnodes"};
  const Result<NodeCount> nodes = parse_nodes(options.given("nnodes").value_or(from_config));
  if (!nodes.ok()) return nodes.status();
  job->nodes = nodes.value();
  job->image = value_of(options.given("image"), "dtrun");
  job->cpus = value_of(options.given("cpus"), "");
  job->memory = value_of(options.given("memory"), "");
  job->max_restarts = launch.max_restarts.value_or(10);
  job->shutdown_timeout_s = 110;
  Status status = read_number(options.given("gpus"), &job->gpus);
  if (status.ok()) status = read_number(options.given("max_restarts"), &job->max_restarts);
  if (status.ok()) status = read_number(options.given("shutdown_timeout"), &job->shutdown_timeout_s);
  return status.ok() ? read_volumes(options, job) : status;
}

bool is_kept(const std::string& folder, const std::vector<VolumeMount>& volumes) {
  for (const VolumeMount& volume : volumes) {
    const std::string within = std::filesystem::path(folder).lexically_relative(volume.path).string();
    if (!within.empty() && !within.starts_with("..")) return true;
  }
  return false;
}

int run_kubernetes(const Invocation& invocation) {
  const KubernetesOptions options{invocation.values};
  Result<JobConfigFile> file = read_job_config(invocation);
  if (!file.ok()) return fail(file.status());
  KubernetesJob job{.key = rendezvous::JobKey::random().text(),
                    .config = file.value().text,
                    .overrides = file.value().overrides};
  Status status = read_name(options, invocation.argument, &job);
  if (status.ok()) status = read_options(options, file.value().config.launch, &job);
  if (!status.ok()) return fail(status);
  const std::string& output = file.value().config.output_dir;
  if (!is_kept(output, job.volumes))
    notice("output_dir " + output +
           " is on the pod's own disk, and goes with the pod: --volume CLAIM=/PATH "
           "and output_dir=/PATH/... keep it");
  return answer(kubernetes_yaml(job));
}

}  // namespace

constinit const Command kKubernetesCommand{
    .name = "kubernetes",
    .summary = "Write what runs a job on Kubernetes, for kubectl apply",
    .description =
        "Prints a Secret with a new key, a Service, a ConfigMap with CONFIG.json, and an Indexed Job with a "
        "pod for each node. The first pod has the coordinator, under a name that stays when the pod is "
        "replaced.\n\n"
        "  dtrun kubernetes --image registry/dtrun --nnodes 3 CONFIG.json | kubectl apply -f -\n\n"
        "docs/kubernetes.md tells what the objects do, and how a job goes on when a pod is lost.",
    .argument = "CONFIG.json",
    .second = "[KEY=VALUE]",
    .second_repeats = true,
    .options = kOptionsOfKubernetes,
    .rare = true,
    .run = run_kubernetes};

}  // namespace dtrun::cmd
