#include "worker/device/cuda/cudnn/plan.h"

#include <algorithm>

#include "worker/base/error.h"

namespace dtrun::worker::cuda {
namespace {

bool has_note(const std::vector<cudnnBackendNumericalNote_t>& notes, cudnnBackendNumericalNote_t note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

// "", or the reason why the rules forbid the engine of this configuration.
std::string objection(const Descriptor& configuration, const EngineRules& rules) {
  const Descriptor engine = configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  const auto notes = engine.get_many<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                  CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  if (rules.deterministic && has_note(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
    return "not deterministic";
  if (rules.full_fp32 && (has_note(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
                          has_note(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) ||
                          has_note(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)))
    return "not in full fp32";
  return "";
}

}  // namespace

CudnnPlan::CudnnPlan(Descriptor finished) : plan_(std::move(finished)) {
  workspace_size_ = plan_.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  engine_ = plan_.get(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
                .get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR)
                .get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}

void CudnnPlan::execute(cudnnHandle_t handle, const std::vector<std::pair<std::int64_t, void*>>& memory,
                        void* workspace) const {
  std::vector<std::int64_t> uids;
  std::vector<void*> pointers;
  for (const auto& [uid, pointer] : memory) {
    uids.push_back(uid);
    pointers.push_back(pointer);
  }
  try {
    Descriptor pack(plan_.cudnn(), CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
        .finalize();
    check_cudnn(plan_.cudnn(), plan_.cudnn().execute(handle, plan_.object(), pack.object()),
                "running a plan");
  } catch (const CudnnRefusal& refusal) {
    throw WorkerError(kExitOsError, refusal.what());
  }
}

CudnnPlanner::CudnnPlanner(const Cudnn& cudnn, PlanDevice device, const std::string& stored)
    : cudnn_(cudnn), device_(std::move(device)), stored_(stored, cudnn.version, device_.name) {
  if (device_.handle != nullptr) return;
  Descriptor& properties = properties_.emplace_back(cudnn_, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, device_.description).finalize();
}

CudnnPlan CudnnPlanner::plan(const Graph& graph, const EngineRules& rules) {
  const std::string identity = graph.identity() + (rules.deterministic ? " deterministic" : "") +
                               (rules.full_fp32 ? " full fp32" : "");
  if (const std::string* text = stored_.find(identity)) {
    try {
      Descriptor stored = new_plan();
      stored.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, *text).finalize();
      return CudnnPlan(std::move(stored));
    } catch (const CudnnRefusal&) {
      // A damaged file of the right version: the plan is made again and replaces the stored one.
    }
  }
  CudnnPlan made = make(graph, rules);
  stored_.put(identity, made.json());
  return made;
}

CudnnPlan CudnnPlanner::make(const Graph& graph, const EngineRules& rules) const {
  const Descriptor finished = graph.finish(device_.handle);
  std::string why;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& configuration : proposals(finished, mode, why)) {
      try {
        why = objection(configuration, rules);
        if (!why.empty()) continue;
        Descriptor plan = new_plan();
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration).finalize();
        return CudnnPlan(std::move(plan));
      } catch (const CudnnRefusal& refusal) {
        why = refusal.what();
      }
    }
  }
  throw CudnnRefusal("cuDNN " + cudnn_.version + " has no engine for " + graph.name() + " on " +
                     device_.name + (why.empty() ? "" : ": " + why));
}

std::vector<Descriptor> CudnnPlanner::proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                                std::string& why_none) const {
  try {
    Descriptor heuristics(cudnn_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (device_.handle == nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties_.front());
    heuristics.finalize();
    return heuristics.get_all(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  } catch (const CudnnRefusal& refusal) {
    why_none = refusal.what();
    return {};
  }
}

Descriptor CudnnPlanner::new_plan() const {
  Descriptor plan(cudnn_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (device_.handle != nullptr)
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, device_.handle);
  else
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties_.front());
  return plan;
}

CudnnHandle::CudnnHandle(const Cudnn& cudnn, cudaStream_t stream) : cudnn_(cudnn), stream_(stream) {
  try {
    check_cudnn(cudnn, cudnn.create(&handle_), "cudnnCreate");
    check_cudnn(cudnn, cudnn.set_stream(handle_, stream), "cudnnSetStream");
  } catch (const CudnnRefusal& refusal) {
    throw WorkerError(kExitOsError, refusal.what());
  }
}

void CudnnHandle::use(cudaStream_t stream) {
  if (stream == stream_) return;
  try {
    check_cudnn(cudnn_, cudnn_.set_stream(handle_, stream), "cudnnSetStream");
  } catch (const CudnnRefusal& refusal) {
    throw WorkerError(kExitOsError, refusal.what());
  }
  stream_ = stream;
}

}  // namespace dtrun::worker::cuda
