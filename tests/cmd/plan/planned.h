// Plans of command lines on a machine that is made up, and a job of the built-in trainer to plan.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cmd/plan/make_job_spec.h"

namespace dtrun::cmd {

using Variables = std::map<std::string, std::string>;

inline constexpr char kKey[] = "dtk1_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

struct Planned {
  Result<JobSpec> spec;
  std::vector<std::string> notices;
};

inline GpuSight with_gpus(int count) {
  if (count == 0) return {.why_none = "no NVIDIA driver"};
  GpuSight result{.driver = "580.65.06", .cuda = 13000};
  for (int i = 0; i < count; ++i)
    result.gpus.push_back({.index = i, .number = i, .name = "NVIDIA H200", .memory = 150754820096});
  return result;
}

inline Planned plan(const std::vector<std::string>& arguments, const Variables& variables = {}, int cpus = 8,
                    int gpus = 0, bool bf16 = true, int built_for = 0, const std::string& venv_python = "") {
  const Environment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    if (found != variables.end()) return found->second.c_str();
    const bool asks_for_key = name == std::string("DTRUN_KEY") && !variables.contains("HOME");
    return asks_for_key ? kKey : nullptr;
  };
  auto parsed = parse_command_line(arguments, environment);
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  std::vector<std::string> notices;
  Machine machine;
  machine.cpus = cpus;
  machine.worker_binary = "/opt/dtrun-worker";
  machine.gpus = [&](bool) { return with_gpus(gpus); };
  machine.worker_cuda = built_for;
  machine.is_home = [](const std::string& host) { return host == "here"; };
  machine.bf16 = bf16;
  machine.venv_python = venv_python;
  for (int id = 0; id < cpus; ++id) machine.topology.push_back({id, 0, 0, id, 0});
  auto spec = make_job_spec(parsed.value(), machine, environment,
                            [&](const std::string& text) { notices.push_back(text); });
  return {std::move(spec), notices};
}

inline JobSpec good(const std::vector<std::string>& arguments, const Variables& variables = {}, int cpus = 8,
                    int gpus = 0) {
  Planned planned = plan(arguments, variables, cpus, gpus);
  REQUIRE_MESSAGE(planned.spec.ok(), planned.spec.status().message());
  return planned.spec.value();
}

inline std::string bad(const std::vector<std::string>& arguments, int exit_code = kExitUsage,
                       const Variables& variables = {}) {
  Planned planned = plan(arguments, variables);
  REQUIRE_FALSE(planned.spec.ok());
  CHECK(planned.spec.status().exit_code() == exit_code);
  return planned.spec.status().message();
}

// Where the coordinator may be.
inline bool alone(const JobSpec& spec) { return std::holds_alternative<Standalone>(spec.rendezvous.hosting); }
inline std::string host(const JobSpec& spec) { return hosts_of(spec.rendezvous.hosting).at(0); }
inline int port(const JobSpec& spec) { return ports_of(spec.rendezvous.hosting).at(0); }
inline bool has_one_host(const JobSpec& spec) { return hosts_of(spec.rendezvous.hosting).size() == 1; }
inline Candidates candidates(const JobSpec& spec) { return std::get<Candidates>(spec.rendezvous.hosting); }

// A directory with a config and a data set whose files begin as they should, gone at the end.
class Job {
 public:
  Job() {
    directory_ = std::filesystem::temp_directory_path() / ("dtrun_plan_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
    write_idx("train-images-idx3-ubyte", {1, 28, 28});
    write_idx("train-labels-idx1-ubyte", {1});
    write_idx("t10k-images-idx3-ubyte", {1, 28, 28});
    write_idx("t10k-labels-idx1-ubyte", {1});
    nlohmann::json config = {{"output_dir", "out"},
                             {"model", {{"type", "convnet"}}},
                             {"data", {{"type", "fashion_mnist"}, {"path", directory_.string()}}},
                             {"launch", {{"nproc_per_node", 3}, {"max_restarts", 5}}}};
    std::ofstream(path()) << config;
  }
  ~Job() { std::filesystem::remove_all(directory_); }
  std::string path() const { return (directory_ / "job.json").string(); }
  std::filesystem::path directory() const { return directory_; }

 private:
  void write_idx(const std::string& name, const std::vector<int>& dims) {
    std::ofstream file(directory_ / name, std::ios::binary);
    file.put(0).put(0).put(8).put(static_cast<char>(dims.size()));
    std::size_t size = 1;
    for (int dim : dims) {
      file.put(0).put(0).put(0).put(static_cast<char>(dim));
      size *= static_cast<std::size_t>(dim);
    }
    file << std::string(size, '\0');
  }
  std::filesystem::path directory_;
};

}  // namespace dtrun::cmd
