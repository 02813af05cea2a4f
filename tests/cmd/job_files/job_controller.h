// The action of Kubernetes' Job controller when a pod of an Indexed Job has ended: podFailurePolicy, the
// limits of failures, the back-off before the next pod. A model of pkg/controller/job in Kubernetes 1.33 to
// 1.36 (pod_failure_policy.go, indexed_job_utils.go, backoff_utils.go), as far as `dtrun kubernetes` uses it.
// Pure.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::test {

struct EndedPod {
  int index = 0;
  int exit_code = 0;
  std::vector<std::string> conditions = {};  // that are true: "DisruptionTarget"
};

// The controller's verdict on an ended pod. No `failed`: a new one takes its place.
struct PodDecision {
  std::string failed = {};  // why the Job failed, as its condition names it: "PodFailurePolicy"
  bool counts = false;      // towards a limit
  int wait_s = 0;           // from the end of the pod to the next one
};

class JobController {
 public:
  // `manifest` is the YAML that `dtrun kubernetes` prints.
  explicit JobController(const std::string& manifest);

  // REQUIRES: exit_code is not 0, the Job has not failed.
  PodDecision ends(const EndedPod& pod);

 private:
  struct Losses {
    int counted = 0, ignored = 0;
  };

  std::string action_for(const EndedPod& pod) const;
  std::string limit_exceeded() const;

  nlohmann::json rules_;
  std::optional<int> limit_, limit_per_index_, max_failed_indexes_;  // as the manifest gives them
  std::map<int, Losses> losses_;                                     // by index
};

}  // namespace dtrun::test
