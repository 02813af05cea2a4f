// NCCL's functions, as those of 2.28 behave: refusals and their errors.
#include <nccl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/nccl_communicator.h"
#include "tests/cuda_on_cpu/nccl_meeting.h"
#include "tests/cuda_on_cpu/nccl_plan.h"
#include "tests/cuda_on_cpu/scheduler.h"

using cuda_on_cpu::Communicator;
using cuda_on_cpu::nccl_error;
using cuda_on_cpu::Phase;
using cuda_on_cpu::Piece;
using cuda_on_cpu::Work;

// The object behind an ncclComm_t. Stays where it is when it is aborted, so that a later use is known.
struct ncclComm {
  std::shared_ptr<Communicator> communicator;
  bool ending = false, ended = false;  // aborted or destroyed
};

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr std::size_t kFloat = sizeof(float);

// For errors that in the real library are a use of freed memory.
[[noreturn]] void end_process(const std::string& why) {
  std::fprintf(stderr, "cuda_on_cpu: NCCL: %s\n", why.c_str());
  std::abort();
}

struct Communicators {
  std::mutex mutex;
  std::vector<std::unique_ptr<ncclComm>> all;  // guarded by mutex, as what they hold
};
Communicators& communicators() {
  static Communicators& all = *new Communicators;
  return all;
}

// `ends`: it is the last call for it.
std::shared_ptr<Communicator> find(ncclComm_t comm, const char* function, bool ends = false) {
  const std::lock_guard lock(communicators().mutex);
  for (const auto& one : communicators().all) {
    if (one.get() != comm) continue;
    if (one->ending)
      end_process(std::string(function) + " is given a communicator that was aborted or destroyed");
    one->ending = ends;
    return one->communicator;
  }
  end_process(std::string(function) + " is given no communicator");
}

ncclComm_t add(std::shared_ptr<Communicator> communicator) {
  const std::lock_guard lock(communicators().mutex);
  communicators().all.push_back(std::make_unique<ncclComm>());
  communicators().all.back()->communicator = std::move(communicator);
  cuda_on_cpu::count_communicator(1);
  return communicators().all.back().get();
}

void remove(ncclComm_t comm) {
  const std::lock_guard lock(communicators().mutex);
  comm->ending = comm->ended = true;
  comm->communicator = nullptr;
  cuda_on_cpu::count_communicator(-1);
}

// Two whose kernels share a device may wait for each other for ever, so the stand-in has one; one that is
// being aborted counts.
bool has_communicator(int device) {
  const std::lock_guard lock(communicators().mutex);
  for (const auto& one : communicators().all) {
    if (!one->ended && one->communicator->device == device) return true;
  }
  return false;
}

// A call that a group has collected in one thread.
struct Call {
  std::shared_ptr<Communicator> communicator;
  cudaStream_t stream;
  Phase phase;  // for sends and receives: one piece
  Work work;    // for an all-reduce
  bool reduces = false;
};
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Call> calls;
  ~Group() {
    if (depth > 0) end_process("a thread ends between ncclGroupStart and ncclGroupEnd");
  }
};
thread_local Group group;

ncclResult_t error_in_group(ncclResult_t error) {
  if (error != ncclSuccess && error != ncclInProgress && group.depth > 0 && group.error == ncclSuccess) {
    group.error = error;
  }
  return error;
}

ncclResult_t check_ready(Communicator& communicator) {
  const ncclResult_t state = communicator.state();
  if (state != ncclInProgress) return state;
  return nccl_error(ncclInvalidArgument,
                    "Attempt to use communicator before the previous operation returned ncclSuccess");
}

ncclResult_t check_memory(const Communicator& communicator, const void* data, std::size_t bytes,
                          const char* function) {
  if (bytes == 0) return ncclSuccess;
  const cuda_on_cpu::Memory memory = cuda_on_cpu::memory_of(data);
  if (memory == cuda_on_cpu::Memory::kPageable || !data) {
    return nccl_error(ncclInvalidArgument, std::string(function) + " : the buffer is no device memory");
  }
  if (memory == cuda_on_cpu::Memory::kDevice && !cuda_on_cpu::is_allocated(data, bytes)) {
    return nccl_error(ncclInvalidArgument, std::string(function) + " : the buffer leaves its allocation");
  }
  if (memory == cuda_on_cpu::Memory::kDevice && cuda_on_cpu::device_of(data) != communicator.device) {
    return nccl_error(ncclInvalidArgument, std::string(function) +
                                               " : the buffer is another device's than the " +
                                               "communicator, " + std::to_string(communicator.device));
  }
  return ncclSuccess;
}

ncclResult_t check_stream(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cuda_on_cpu::scheduler().is_capturing(stream, &status);
  if (error != cudaSuccess) return nccl_error(ncclUnhandledCudaError, cudaGetErrorName(error));
  if (status == cudaStreamCaptureStatusNone) return ncclSuccess;
  return nccl_error(ncclInvalidUsage, "this stand-in has no NCCL in CUDA's graphs");
}

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

// As many receives from this rank itself as sends to it, of the same sizes.
bool is_matched_with_itself(const Work& work, int rank) {
  const auto own = [&](const std::vector<Piece>& pieces) {
    std::vector<std::size_t> sizes;
    for (const Piece& piece : pieces) {
      if (piece.peer == rank) sizes.push_back(piece.bytes);
    }
    return sizes;
  };
  return own(work.phases[0].sends) == own(work.phases[0].receives);
}

// One operation of all that the group has for one communicator.
ncclResult_t gather(const std::vector<Call>& calls, const std::shared_ptr<Communicator>& communicator,
                    Work* work) {
  std::size_t reductions = 0, count = 0;
  Work moves;
  moves.phases.emplace_back();
  for (const Call& call : calls) {
    if (call.communicator != communicator) continue;
    if (count++ > 0 && call.stream != moves.stream) {
      return nccl_error(ncclInvalidUsage, "this stand-in has one stream for a communicator's group");
    }
    moves.stream = call.stream;
    if (call.reduces) {
      ++reductions;
      *work = call.work;
      continue;
    }
    Phase& all = moves.phases[0];
    all.sends.insert(all.sends.end(), call.phase.sends.begin(), call.phase.sends.end());
    all.receives.insert(all.receives.end(), call.phase.receives.begin(), call.phase.receives.end());
  }
  if (reductions > 0) {
    if (count == 1) return ncclSuccess;
    return nccl_error(ncclInvalidUsage, "this stand-in has nothing beside a reduction in a group");
  }
  if (!is_matched_with_itself(moves, communicator->rank)) {
    return nccl_error(ncclInvalidUsage, "Trying to send to self without a matching recv");
  }
  moves.results = moves.phases[0].receives;
  *work = std::move(moves);
  return ncclSuccess;
}

ncclResult_t launch_all(std::vector<Call> calls) {
  std::vector<std::pair<std::shared_ptr<Communicator>, Work>> launches;
  for (const Call& call : calls) {
    bool known = false;
    for (const auto& [communicator, work] : launches) known |= communicator == call.communicator;
    if (known) continue;
    if (!launches.empty() && launches[0].first->blocking != call.communicator->blocking) {
      return nccl_error(ncclInvalidArgument,
                        "Blocking and nonblocking communicators are not allowed in the same group.");
    }
    Work work;
    if (const ncclResult_t error = gather(calls, call.communicator, &work); error != ncclSuccess)
      return error;
    launches.emplace_back(call.communicator, std::move(work));
  }
  for (auto& [communicator, work] : launches) communicator->begin_launch(std::move(work));
  ncclResult_t result = ncclSuccess;
  for (const auto& [communicator, work] : launches) {
    const ncclResult_t one = communicator->blocking ? communicator->wait_for_job() : ncclInProgress;
    if (result == ncclSuccess) result = one;
  }
  return result;
}

// The common part of send, receive and all-reduce: `check`, which gives an error or makes the call, then the
// group.
template <typename Make>
ncclResult_t add_call(ncclComm_t comm, const char* function, Make make) {
  if (!comm)
    return error_in_group(
        nccl_error(ncclInvalidArgument, std::string(function) + " : comm argument is NULL"));
  const auto communicator = find(comm, function);
  ncclGroupStart();
  ncclResult_t result = check_ready(*communicator);
  if (result == ncclSuccess) result = make(communicator);
  if (result != ncclSuccess && !communicator->blocking)
    communicator->fail(result, cuda_on_cpu::nccl_last_error());
  error_in_group(result);
  const ncclResult_t ended = ncclGroupEnd();
  if (result != ncclSuccess) return result;
  return ended;
}

ncclResult_t add_piece(ncclComm_t comm, const char* function, void* data, std::size_t count,
                       ncclDataType_t type, int peer, cudaStream_t stream, bool sends) {
  return add_call(comm, function, [&](const std::shared_ptr<Communicator>& communicator) {
    if (peer < 0 || peer >= communicator->size) {
      return nccl_error(ncclInvalidArgument, std::string(function) + " : invalid root " +
                                                 std::to_string(peer) + " (root should be in the 0.." +
                                                 std::to_string(communicator->size) + " range)");
    }
    if (bytes_of(type) == 0)
      return nccl_error(ncclInvalidArgument, std::string(function) + " : invalid type");
    const std::size_t bytes = count * bytes_of(type);
    ncclResult_t error = check_memory(*communicator, data, bytes, function);
    if (error == ncclSuccess) error = check_stream(stream);
    if (error != ncclSuccess) return error;
    Call call{communicator, stream, {}, {}};
    (sends ? call.phase.sends : call.phase.receives).push_back({peer, static_cast<char*>(data), bytes});
    group.calls.push_back(std::move(call));
    return ncclSuccess;
  });
}

// Parts of a vector, one for each rank, travel around the ring: a sum begins at its part's rank, so its order
// depends on the number of ranks.
Work ring_of(const Communicator& communicator, const float* from, float* to, std::size_t count) {
  const int size = communicator.size, rank = communicator.rank;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const auto part = [=](int peer, int number) {
    const auto n = static_cast<std::size_t>((number + 2 * size) % size),
               ranks = static_cast<std::size_t>(size);
    const std::size_t begin = count * n / ranks, end = count * (n + 1) / ranks;
    return Piece{peer, reinterpret_cast<char*>(to + begin), (end - begin) * kFloat};
  };
  Work work;
  work.phases.push_back({{}, {}, [=] {
                           if (from != to) std::memcpy(to, from, count * kFloat);
                         }});
  const auto received = std::make_shared<std::vector<float>>(count / static_cast<std::size_t>(size) + 1);
  for (int step = 0; step < size - 1; ++step) {
    Phase phase;
    phase.sends = {part(next, rank - step)};
    const Piece sum = part(previous, rank - step - 1);
    phase.receives = {{previous, reinterpret_cast<char*>(received->data()), sum.bytes}};
    phase.then = [=] {
      auto* const sums = reinterpret_cast<float*>(sum.data);
      for (std::size_t i = 0; i < sum.bytes / kFloat; ++i) sums[i] = (*received)[i] + sums[i];
    };
    work.phases.push_back(std::move(phase));
  }
  for (int step = 0; step < size - 1; ++step) {
    work.phases.push_back({{part(next, rank + 1 - step)}, {part(previous, rank - step)}});
  }
  work.results = {{rank, reinterpret_cast<char*>(to), count * kFloat}};
  return work;
}

std::string this_gpu(int device) {
  char host[40] = "";
  gethostname(host, sizeof host - 1);
  const char* const id = std::getenv("NCCL_HOSTID");
  return std::string(id ? id : host) + " " + cuda_on_cpu::pci_bus_id(device);
}

ncclResult_t refused_in_group(const char* function) {
  return error_in_group(nccl_error(
      ncclInvalidUsage, std::string(function) + " : this stand-in has it outside of groups alone"));
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  if (!version) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  thread_local std::string text;
  text = cuda_on_cpu::nccl_last_error();
  return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (!id) return ncclInvalidArgument;
  return cuda_on_cpu::make_unique_id(id);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return ncclCommInitRankScalable(comm, size, rank, 1, &id, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int ids, ncclUniqueId* of_ids,
                                      ncclConfig_t* config) {
  if (group.depth > 0) return refused_in_group("CommInitRank");
  if (const cudaError_t error = cuda_on_cpu::usable(); error != cudaSuccess) {
    return nccl_error(ncclUnhandledCudaError, cudaGetErrorName(error));
  }
  if (!comm || !of_ids || ids <= 0 || ids > size) {
    return nccl_error(ncclInvalidArgument, "CommInitRank : improper usage");
  }
  if (size < 1 || rank < 0 || rank >= size) {
    return nccl_error(ncclInvalidArgument,
                      "Invalid rank requested : " + std::to_string(rank) + "/" + std::to_string(size));
  }
  if (config && config->magic != kConfigMagic) {
    return nccl_error(ncclInvalidArgument,
                      "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  }
  const bool blocking = !config || config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking == 1;
  const int device = cuda_on_cpu::current_device();
  if (has_communicator(device)) {
    return nccl_error(ncclInvalidUsage,
                      "this stand-in has one communicator on a device: abort the other first");
  }
  const auto communicator = std::make_shared<Communicator>(rank, size, device, blocking);
  ncclComm_t const made = add(communicator);
  __atomic_store_n(comm, made, __ATOMIC_RELEASE);  // another thread may abort what blocks here
  communicator->begin_init({of_ids, of_ids + ids}, this_gpu(device));
  if (!blocking) return ncclInProgress;
  const ncclResult_t result = communicator->wait_for_job();
  if (result == ncclSuccess || communicator->aborted()) return result;
  remove(made);
  *comm = nullptr;
  return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (!comm || !state) return nccl_error(ncclInvalidArgument, "ncclGetAsyncError : an argument is NULL");
  *state = find(comm, "ncclCommGetAsyncError")->state(true);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  if (group.depth > 0) return refused_in_group("ncclCommAbort");
  find(comm, "ncclCommAbort", true)->abort();
  remove(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  if (group.depth > 0) return refused_in_group("ncclCommFinalize");
  const auto communicator = find(comm, "ncclCommFinalize");
  ncclResult_t result = check_ready(*communicator);
  if (result == ncclSuccess && communicator->finalized()) {
    result = nccl_error(ncclInvalidArgument, "ncclCommFinalize is called twice");
  }
  if (result != ncclSuccess) return result;
  communicator->begin_finalize();
  return communicator->blocking ? communicator->wait_for_job() : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  if (group.depth > 0) return refused_in_group("ncclCommDestroy");
  const auto communicator = find(comm, "ncclCommDestroy");
  if (const ncclResult_t error = check_ready(*communicator); error != ncclSuccess) return error;
  find(comm, "ncclCommDestroy", true)->destroy();
  remove(comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return nccl_error(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--group.depth > 0) return ncclSuccess;
  const ncclResult_t error = std::exchange(group.error, ncclSuccess);
  std::vector<Call> calls = std::exchange(group.calls, {});
  return error != ncclSuccess ? error : launch_all(std::move(calls));
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_piece(comm, "Send", const_cast<void*>(data), count, type, peer, stream, true);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_piece(comm, "Recv", data, count, type, peer, stream, false);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return add_call(comm, "AllReduce", [&](const std::shared_ptr<Communicator>& communicator) {
    if (type != ncclFloat32 || op != ncclSum) {
      return nccl_error(ncclInvalidArgument, "AllReduce : this stand-in has sums of floats alone");
    }
    ncclResult_t error = check_memory(*communicator, from, count * kFloat, "AllReduce");
    if (error == ncclSuccess) error = check_memory(*communicator, to, count * kFloat, "AllReduce");
    if (error == ncclSuccess) error = check_stream(stream);
    if (error != ncclSuccess || count == 0) return error;
    Call call{communicator, stream, {}, {}, true};
    call.work = ring_of(*communicator, static_cast<const float*>(from), static_cast<float*>(to), count);
    call.work.stream = stream;
    group.calls.push_back(std::move(call));
    return ncclSuccess;
  });
}
