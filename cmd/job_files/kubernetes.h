// The objects that run a job on Kubernetes, as YAML: configs/cluster/kubernetes.yaml.in with its values.
// Pure.
#pragma once

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
  std::string name = {};                    // of all objects; fits_as_name
  std::string image = {};                   // its entrypoint is dtrun
  NodeCount nodes = {};                     // one pod each
  std::string key = {};                     // the job's
  std::string config = {};                  // the text of the config
  std::vector<std::string> overrides = {};  // KEY=VALUE
  int gpus = 0;                             // of each pod
  std::string cpus = {}, memory = {};       // as Kubernetes writes quantities; empty: no limit
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

// REQUIRES: fits_as_name(job.name), job.config is JSON.
std::string kubernetes_yaml(const KubernetesJob& job);

}  // namespace dtrun::cmd
