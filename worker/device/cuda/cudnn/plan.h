// cuDNN's execution of a graph on one model of GPU: the engine, its settings, its compiled kernels.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/device/cuda/cudnn/descriptor.h"
#include "worker/device/cuda/cudnn/graph.h"
#include "worker/device/cuda/cudnn/stored_plans.h"

namespace dtrun::worker::cuda {

class CudnnPlan {
 public:
  // `finished`: an execution plan.
  explicit CudnnPlan(Descriptor finished);

  std::int64_t workspace_size() const { return workspace_size_; }  // bytes
  std::int64_t engine() const { return engine_; }  // cuDNN's number of the engine, for this kind of graph
  std::string json() const { return plan_.get_text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION); }

  // Enqueues on the handle's stream. `memory`: for each uid of the graph device memory, or for a number the
  // address of a float on the host, which is read before this returns. `workspace`: workspace_size() bytes of
  // device memory that no other work uses meanwhile. Throws WorkerError with EX_OSERR.
  void execute(cudnnHandle_t handle, const std::vector<std::pair<std::int64_t, void*>>& memory,
               void* workspace) const;

 private:
  Descriptor plan_;
  std::int64_t workspace_size_ = 0, engine_ = 0;
};

// The rules for engines that cuDNN proposes.
struct EngineRules {
  bool deterministic = false;  // excludes engines that cuDNN calls non-deterministic
  bool full_fp32 = false;      // excludes engines that round their inputs (tensor cores with TF32)
};

// The GPU that plans are for: that of `handle`, or without a handle the one that `description` describes.
struct PlanDevice {
  std::string name;            // "NVIDIA H200"
  int compute_capability = 0;  // 90 for 9.0
  cudnnHandle_t handle = nullptr;
  std::string description;  // JSON, in the form of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
};

// One user at a time.
class CudnnPlanner {
 public:
  // `stored`: StoredPlans::text() of an earlier start, or "". Throws CudnnRefusal. REQUIRES: `cudnn` and the
  // handle outlive the planner.
  CudnnPlanner(const Cudnn& cudnn, PlanDevice device, const std::string& stored);

  // The stored plan of this graph, or else one with the first working engine among the proposals of cuDNN's
  // heuristics that the rules allow. The choice follows from graph, rules, GPU and version alone: engines are
  // not measured, since two runs of one job could then differ in their bits. Throws CudnnRefusal.
  CudnnPlan plan(const Graph& graph, const EngineRules& rules);

  const Cudnn& cudnn() const { return cudnn_; }
  const PlanDevice& device() const { return device_; }
  // The text for the next start, with every plan that was made or used.
  std::string stored() const { return stored_.text(); }

 private:
  CudnnPlan make(const Graph& graph, const EngineRules& rules) const;
  // Best first.
  std::vector<Descriptor> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                    std::string& why_none) const;
  Descriptor new_plan() const;

  const Cudnn& cudnn_;
  PlanDevice device_;
  std::vector<Descriptor> properties_;  // those of a described device; else empty
  StoredPlans stored_;
};

// cuDNN's state; used by one thread at a time.
class CudnnHandle {
 public:
  // A handle of the current device. Throws WorkerError with EX_OSERR.
  CudnnHandle(const Cudnn& cudnn, cudaStream_t stream);
  ~CudnnHandle() { cudnn_.destroy(handle_); }
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  operator cudnnHandle_t() const { return handle_; }  // NOLINT: wraps a cudnnHandle_t
  // Sets the stream of later executions. Throws WorkerError with EX_OSERR.
  void use(cudaStream_t stream);

 private:
  const Cudnn& cudnn_;
  cudnnHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace dtrun::worker::cuda
