#include <openssl/evp.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/job_file_options.h"
#include "cmd/job_files/kubernetes.h"
#include "cmd/job_files/pod_values.h"
#include "cmd/options/values.h"
#include "proto/base/text_in.h"
#include "proto/core/exit_codes.h"
#include "proto/core/utf8.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::cmd {
namespace {

constexpr int kMetricsPort = 29401;

constexpr OptionEntry kOwnOptionsOfKubernetes[] = {
    {.name = "image", .placeholder = "IMAGE", .help = "Pod image, with a tag or digest [must be given]"},
    {.name = "output",
     .short_name = "o",
     .placeholder = "FILE",
     .help =
         "File for the objects; no other user may read it, since the job's key is in it [standard output]",
     .is_path = true},
    {.name = "name", .placeholder = "NAME", .help = "Objects' name [that of the config, script or program]"},
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
    {.name = "http_port",
     .placeholder = "N|auto|off",
     .help = "Port of the job's page and metrics in the pods; auto: on loopback, without metrics [29401]"},
    kColorOption,
    kHelpOption};
constexpr auto kOptionsOfKubernetes = with_those_of_jobs<kOwnOptionsOfKubernetes>();

using KubernetesOptions = Values<kOptionsOfKubernetes>;

Status read_volumes(const KubernetesOptions& options, KubernetesJob* job) {
  const auto given = options.given("volume");
  if (!given) return {};
  for (const std::string& text : repeated_values(*given)) {
    ASSIGN_OR_RETURN(VolumeMount volume, parse_volume(text));
    if (const std::string taken = taken_by(volume, job->volumes); !taken.empty())
      return usage("--volume=" + text + ": the path is that of " + taken + " already");
    job->volumes.push_back(std::move(volume));
  }
  return {};
}

Status read_name(const KubernetesOptions& options, const std::string& path, KubernetesJob* job) {
  const auto given = options.given("name");
  job->name = given ? given->value : name_of_config(path);
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
  std::optional<int> port = kMetricsPort;
  RETURN_IF_ERROR(read_given(options.given("http_port"), &port, parse_page_port));
  job->metrics_port = port.value_or(0);
  if (job->metrics_port == 0) job->options.push_back(std::string("--http_port=") + (port ? "auto" : "off"));
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

std::string base64(const std::string& text) {
  std::string encoded(4 * ((text.size() + 2) / 3) + 1, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                      reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  encoded.resize(static_cast<std::size_t>(size));
  return encoded;
}

Status read_program(const JobProgram& program, KubernetesJob* job) {
  job->options = program.options;
  job->words = program.words;
  if (!program.text) {
    if (program.path.ends_with(".py") && program.words.front() != "--")
      notice(program.path + " is not here, and so must be in the image or on a volume");
    return {};
  }
  job->file = program.config ? "job.json" : name_in_config_map(program.path);
  job->text = *program.text;
  if (invalid_utf8_at(job->text)) return Status(kExitNoInput, program.path + ": this is no text in UTF-8");
  if (job->text.size() > kMostInConfigMap)
    return usage(program.path +
                 ": a file of more than 900 KiB fits into no ConfigMap: put it into the image");
  return {};
}

// It has the job's key.
int write_for_oneself(const std::string& file, const std::string& text) {
  umask(077);
  const Status status = replace_text(file, text);
  return status.ok() ? kExitOk : fail(status);
}

int run_kubernetes(const Invocation& invocation) {
  const KubernetesOptions options{invocation.values};
  const Result<JobProgram> program = read_job(invocation, kOwnOptionsOfKubernetes);
  if (!program.ok()) return fail(program.status());
  const rendezvous::JobKey key = rendezvous::JobKey::random();
  KubernetesJob job{
      .print = key.fingerprint(), .key = base64(key.text()), .metrics_token = base64(key.page_token(""))};
  Status status = read_program(program.value(), &job);
  if (status.ok()) status = read_name(options, program.value().path, &job);
  if (status.ok()) status = read_options(options, program.value().launch(), &job);
  if (!status.ok()) return fail(status);
  if (const auto& config = program.value().config) {
    status = check_output(config->output_dir, job.volumes);
    if (!status.ok()) return fail(status);
    tell_paths_of_here(*config);
  }
  const auto output = options.given("output");
  return output && output->value != "-" ? write_for_oneself(output->value, kubernetes_yaml(job))
                                        : answer(kubernetes_yaml(job));
}

}  // namespace

constinit const Command kKubernetesCommand{
    .name = "kubernetes",
    .summary = "Write a job's Kubernetes manifests, for kubectl apply",
    .description =
        "Writes a Secret with a new key, a Service, a ConfigMap with CONFIG.json or SCRIPT.py, and an "
        "Indexed "
        "Job with a pod for each node. The first pod has the coordinator, under a name that stays when the "
        "pod is replaced.\n\n"
        "  dtrun kubernetes --image registry/dtrun:1 --nnodes 3 -o job.yaml CONFIG.json\n"
        "  kubectl apply -f job.yaml\n\n"
        "Options of dtrun (dtrun --help), such as --log_dir and --recovery, are those of the pods' dtrun, "
        "but "
        "for those of one node or of named hosts.\n\n"
        "docs/kubernetes.md tells what the objects do, and how a job goes on when a pod is lost.",
    .argument = "CONFIG.json",
    .second = "[KEY=VALUE]",
    .second_repeats = true,
    .takes_job = true,
    .options = kOptionsOfKubernetes,
    .rare = true,
    .run = run_kubernetes};

}  // namespace dtrun::cmd
