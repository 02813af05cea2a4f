// The objects that run a job on Kubernetes, as YAML: configs/cluster/kubernetes.yaml.in with its values.
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/core/job_spec.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// A claim of a persistent volume, and where the pods see it.
struct VolumeMount {
  std::string claim, path;
  bool read_only = false;
};

struct KubernetesJob {
  std::string name = {};           // of all objects; fits_as_name
  std::string print = {};          // beside the name where another print of the job has another object
  std::string image = {};          // its entrypoint is dtrun
  NodeCount nodes = {};            // one pod each
  std::string key = {};            // the job's; in base64, as Secrets have it
  std::string metrics_token = {};  // of a Prometheus, likewise
  int metrics_port = 0;            // 0: none
  std::string file = {};           // the name that the config or script has in the pods; empty: there is none
  std::string text = {};           // of that file
  std::vector<std::string> options = {};  // of dtrun there, beside those that follow from the rest
  std::vector<std::string> words = {};    // behind the file, or all of the program
  int gpus = 0;                           // of each pod
  std::string cpus = {}, memory = {};     // as Kubernetes writes quantities; empty: no limit
  int max_restarts = 0;
  int shutdown_timeout_s = 0;
  std::vector<VolumeMount> volumes = {};
};

// True if Kubernetes takes it for a Service and for the pods that a Job numbers: a letter, then letters,
// digits and '-', no '-' at the end, all small, at most 52.
bool fits_as_name(const std::string& name);
// The nearest name that fits, "job" if nothing of it does: "runs/My_Job.json" is "my-job".
std::string name_of_config(const std::string& path);

// CLAIM=/PATH or CLAIM=/PATH:ro. EX_USAGE.
Result<VolumeMount> parse_volume(const std::string& text);
// What of the pods has the volume's path already: another volume, or dtrun. Empty: nothing.
std::string taken_by(const VolumeMount& volume, const std::vector<VolumeMount>& others);

// The key in a ConfigMap that a file of this path has: its name, if Kubernetes takes it.
std::string name_in_config_map(const std::string& path);
inline constexpr std::size_t kMostInConfigMap = 900 << 10;  // bytes, of the 1 MiB that the object may have

// REQUIRES: fits_as_name(job.name).
std::string kubernetes_yaml(const KubernetesJob& job);

}  // namespace dtrun::cmd
