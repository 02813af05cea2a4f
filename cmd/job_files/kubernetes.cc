#include "cmd/job_files/kubernetes.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "cmd/job_files/template.h"
#include "cmd/job_files/templates.h"
#include "cmd/options/values.h"
#include "proto/core/lost_exits.h"
#include "proto/core/text.h"
#include "proto/json/json.h"

namespace dtrun::cmd {
namespace {

// A Job's pods are NAME-INDEX, a label of DNS: 63 characters, up to 6 of them for the index here.
constexpr std::size_t kLongestName = 52;
// Seconds between the end of the workers and the kubelet's SIGKILL.
constexpr int kGraceBeyondShutdown = 10;

bool is_small_letter(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// JSON is YAML, and in ASCII no character means another thing there.
std::string yaml(const Json& value) { return ascii_json_text(value); }

std::string args_of(const KubernetesJob& job) {
  std::string nodes = std::to_string(job.nodes.min);
  if (job.nodes.max != job.nodes.min) nodes += ":" + std::to_string(job.nodes.max);
  Json args = {"--nnodes",           nodes,
               "--max_restarts",     std::to_string(job.max_restarts),
               "--shutdown_timeout", std::to_string(job.shutdown_timeout_s)};
  const auto is_given = [&](const char* option) {
    return std::ranges::any_of(job.options,
                               [&](const std::string& word) { return word.starts_with(option); });
  };
  if (job.gpus > 0 && !is_given("--nproc_per_node=")) args.insert(args.end(), {"--nproc_per_node", "gpu"});
  if (job.metrics_port > 0) {
    args.insert(args.end(), {"--http_port", std::to_string(job.metrics_port)});
    if (!is_given("--http_bind=")) args.insert(args.end(), {"--http_bind", "0.0.0.0"});
  }
  for (const std::string& option : job.options) args.push_back(option);
  if (!job.file.empty()) args.push_back("/config/" + job.file);
  for (const std::string& word : job.words) args.push_back(word);
  return yaml(args);
}

// Configs stay readable.
std::string file_entry(const KubernetesJob& job) {
  const Json config = job.file.ends_with(".json") ? parse_json(job.text) : Json();
  if (!config.is_object()) return job.file + ": " + yaml(job.text);
  std::string entry = job.file + ": |";
  for (const std::string& line : split(ascii_json_text(config, 2))) entry += "\n  " + line;
  return entry;
}

std::string config_map_of(const KubernetesJob& job) {
  if (job.file.empty()) return "";
  std::string object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"" + job.name + "-" + job.print +
                       "\"}\nimmutable: true\ndata:";
  for (const std::string& line : split(file_entry(job))) object += "\n  " + line;
  return object + "\n---";
}

std::string lost_exits() {
  std::string codes;
  for (const int code : kLostExits) codes += (codes.empty() ? "" : ", ") + std::to_string(code);
  return codes;
}

std::string resources_of(const KubernetesJob& job) {
  Json limits = Json::object();
  if (job.gpus > 0) limits["nvidia.com/gpu"] = job.gpus;
  if (!job.cpus.empty()) limits["cpu"] = job.cpus;
  if (!job.memory.empty()) limits["memory"] = job.memory;
  return limits.empty() ? "" : "resources: {limits: " + yaml(limits) + "}";
}

std::string read_only(const VolumeMount& volume) { return volume.read_only ? ", readOnly: true" : ""; }

// The lines that `line` makes of each volume and its number.
template <typename Line>
std::string lines_of(const std::vector<VolumeMount>& volumes, Line line) {
  std::string lines;
  for (std::size_t i = 0; i < volumes.size(); ++i)
    lines += (i > 0 ? "\n" : "") + line("volume-" + std::to_string(i), volumes[i]);
  return lines;
}

}  // namespace

bool fits_as_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && is_small_letter(name.front()) &&
         name.back() != '-' &&
         std::ranges::all_of(name, [](char c) { return is_small_letter(c) || is_digit(c) || c == '-'; });
}

std::string name_of_config(const std::string& path) {
  std::string name;
  for (const char c : std::filesystem::path(path).stem().string()) {
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool stays = is_small_letter(small) || is_digit(small);
    if (stays && name.empty() && is_digit(small)) name = "job-";
    if (stays || !name.empty()) name += stays ? small : '-';
  }
  name.resize(std::min(name.size(), kLongestName));
  name.erase(name.find_last_not_of('-') + 1);
  return name.empty() ? "job" : name;
}

Result<VolumeMount> parse_volume(const std::string& text) {
  constexpr std::string_view kReadOnly = ":ro";
  const std::size_t equals = text.find('=');
  VolumeMount volume{.claim = text.substr(0, equals),
                     .path = equals == std::string::npos ? "" : text.substr(equals + 1)};
  volume.read_only = volume.path.ends_with(kReadOnly);
  if (volume.read_only) volume.path.resize(volume.path.size() - kReadOnly.size());
  const bool is_path = volume.path.starts_with("/") && volume.path.size() > 1;
  if (!volume.claim.empty() && is_path && volume.path.find(':') == std::string::npos) return volume;
  return usage("--volume=" + text +
               ": expected CLAIM=/PATH, a persistent volume claim and where pods see it, or CLAIM=/PATH:ro");
}

// Kubernetes refuses a path that is mounted twice, with the pod, when other objects are made already.
std::string taken_by(const VolumeMount& volume, const std::vector<VolumeMount>& others) {
  const auto normal = [](const std::string& path) {
    std::string text = std::filesystem::path(path).lexically_normal().string();
    if (text.size() > 1 && text.ends_with('/')) text.pop_back();
    return text;
  };
  const std::string path = normal(volume.path);
  for (const char* const own : {"/config", "/work", "/tmp", "/dev/shm", "/var/run/secrets/dtrun", "/"})
    if (path == own) return "dtrun";
  for (const VolumeMount& other : others)
    if (path == normal(other.path)) return "--volume " + other.claim + "=" + other.path;
  return "";
}

std::string name_in_config_map(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const auto fits = [](char c) {
    return is_small_letter(c) || is_digit(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
  };
  const bool is_taken = name.size() <= 253 && name.find_first_not_of('.') != name.npos && name != "..";
  return is_taken && std::ranges::all_of(name, fits)
             ? name
             : "job" + std::filesystem::path(path).extension().string();
}

std::string kubernetes_yaml(const KubernetesJob& job) {
  const bool elastic = job.nodes.min < job.nodes.max;
  return fill_in(kKubernetesTemplate,
                 {{"name", job.name},
                  {"print", job.print},
                  {"key", yaml(job.key)},
                  {"metrics_token", yaml(job.metrics_token)},
                  {"metrics_port", job.metrics_port > 0 ? std::to_string(job.metrics_port) : ""},
                  {"config_map", config_map_of(job)},
                  {"file", job.file},
                  {"pods", std::to_string(job.nodes.max)},
                  // A pod of an elastic job that found no node, or came too late, need not end.
                  {"success_policy", elastic ? "successPolicy: {rules: [{succeededIndexes: \"0\"}]}" : ""},
                  {"lost", lost_exits()},
                  {"grace", std::to_string(job.shutdown_timeout_s + kGraceBeyondShutdown)},
                  {"image", yaml(job.image)},
                  {"args", args_of(job)},
                  {"resources", resources_of(job)},
                  {"mounts", lines_of(job.volumes,
                                      [](const std::string& name, const VolumeMount& volume) {
                                        return "- {name: " + name + ", mountPath: " + yaml(volume.path) +
                                               read_only(volume) + "}";
                                      })},
                  {"volumes", lines_of(job.volumes, [](const std::string& name, const VolumeMount& volume) {
                     return "- {name: " + name +
                            ", persistentVolumeClaim: {claimName: " + yaml(volume.claim) + read_only(volume) +
                            "}}";
                   })}});
}

}  // namespace dtrun::cmd
