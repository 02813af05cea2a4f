// gloo's rendezvous store on top of the agent's key-value store. Values are cached: gloo asks for each twice
// (wait, then get).
#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "worker/collective/process_group.h"

namespace dtrun::worker {

class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(KeyValueStore& store, const ProcessGroupOptions& options)
      : store_(store),
        prefix_(options.store_prefix),
        timeout_(options.connect_timeout),
        stop_(options.stop) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  // gloo passes the timeout of one connection; a peer may take longer to start.
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  KeyValueStore& store_;
  const std::string prefix_;
  const std::chrono::milliseconds timeout_;
  const std::stop_token stop_;
  std::map<std::string, std::string> seen_;
};

}  // namespace dtrun::worker
