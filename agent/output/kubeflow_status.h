// Tells Kubeflow Trainer how far the job is, if it asks: then `kubectl get trainjob` shows it. The protocol
// is that of KEP-2779 (https://github.com/kubeflow/trainer, docs/user-guides/trainjob-progress.md): a POST of
// JSON over TLS to the address in $KUBEFLOW_TRAINER_SERVER_URL, with the token in the file …_TOKEN, to a
// server whose certificate the authority in the file …_CA_CERT has made.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "proto/core/training.h"

namespace dtrun::agent {

// The body of a POST. `updated_at` in the form of RFC 3339.
std::string kubeflow_status_json(const Progress& progress, std::optional<double> seconds_left,
                                 const std::string& updated_at);

struct KubeflowServer {
  std::string url, ca_file, token_file;

  // Nothing if the variables are not set; `environment` is getenv.
  static std::optional<KubeflowServer> of(const std::function<const char*(const char*)>& environment);
  // Empty: it took the body; else why not. Blocks for a few seconds at most.
  std::string post(const std::string& body) const;
};

// Posts the newest progress from a thread of its own, at most every five seconds: its delays and faults do
// not reach the job. All members are called from one thread.
class KubeflowStatus {
 public:
  explicit KubeflowStatus(KubeflowServer server);
  ~KubeflowStatus() { finish(); }
  KubeflowStatus(const KubeflowStatus&) = delete;

  void update(const Progress& progress, std::optional<double> seconds_left);
  // Posts the last one. No update follows.
  void finish();
  // Once, when a post has failed: why.
  std::string take_fault();

 private:
  void run();

  const KubeflowServer server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::pair<Progress, std::optional<double>>> waiting_;  // guarded by mutex_, like those below
  std::string fault_;
  bool failed_ = false, ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace dtrun::agent
