// NCCL's functions that the worker calls, as those of 2.28 behave: refusals and their errors. Communicators
// do not block, since the worker has no others.
#include <nccl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/nccl_communicator.h"

using cuda_on_cpu::Communicator;
using cuda_on_cpu::nccl_error;

struct ncclComm final : Communicator {
  using Communicator::Communicator;
};

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr std::size_t kFloat = sizeof(float);

struct Communicators {
  std::mutex mutex;
  std::vector<std::unique_ptr<ncclComm>> all;  // guarded by mutex; aborted ones, too
};
Communicators& communicators() {
  static Communicators& all = *new Communicators;
  return all;
}

// For errors that in the real library are a use of freed memory.
[[noreturn]] void end_process(const std::string& why) {
  std::fprintf(stderr, "cuda_on_cpu: NCCL: %s\n", why.c_str());
  std::abort();
}

Communicator& alive(ncclComm_t comm, const char* function) {
  if (comm->aborted()) end_process(std::string(function) + " is given a communicator that was aborted");
  return *comm;
}

// What the thread has called since ncclGroupStart.
struct Calls {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  Communicator* communicator = nullptr;
  cuda_on_cpu::Group group;
};
thread_local Calls calls;

ncclResult_t check_memory(const Communicator& communicator, const void* data, std::size_t bytes,
                          const std::string& function) {
  if (bytes == 0) return ncclSuccess;
  if (cuda_on_cpu::memory_of(data) != cuda_on_cpu::Memory::kDevice)
    return nccl_error(ncclInvalidArgument, function + " : the buffer is no device memory");
  if (!cuda_on_cpu::is_allocated(data, bytes))
    return nccl_error(ncclInvalidArgument, function + " : the buffer leaves its allocation");
  if (cuda_on_cpu::device_of(data) != communicator.device)
    return nccl_error(ncclInvalidArgument, function + " : the buffer is another device's");
  return ncclSuccess;
}

ncclResult_t check_call(Communicator& communicator, const void* data, std::size_t bytes, ncclDataType_t type,
                        int peer, cudaStream_t stream, const std::string& function) {
  const ncclResult_t state = communicator.state();
  if (state == ncclInProgress)
    return nccl_error(ncclInvalidArgument,
                      "Attempt to use communicator before the previous operation returned ncclSuccess");
  if (state != ncclSuccess) return state;
  if (peer < 0 || peer >= communicator.size)
    return nccl_error(ncclInvalidArgument, function + " : invalid root " + std::to_string(peer));
  if (peer == communicator.rank || type != ncclFloat)
    return nccl_error(ncclInvalidUsage, function + " : this stand-in has floats to other ranks alone");
  const bool other = calls.communicator && calls.communicator != &communicator;
  if (other || (calls.communicator && calls.group.stream != stream))
    return nccl_error(ncclInvalidUsage, "this stand-in has one communicator and stream in a group");
  return check_memory(communicator, data, bytes, function);
}

ncclResult_t add_message(ncclComm_t comm, const char* function, void* data, std::size_t count,
                         ncclDataType_t type, int peer, cudaStream_t stream, bool sends) {
  Communicator& communicator = alive(comm, function);
  ncclGroupStart();
  const std::size_t bytes = count * kFloat;
  const ncclResult_t error = check_call(communicator, data, bytes, type, peer, stream, function);
  if (error == ncclSuccess) {
    calls.communicator = &communicator;
    calls.group.stream = stream;
    (sends ? calls.group.sends : calls.group.receives).push_back({peer, static_cast<char*>(data), bytes});
  } else {
    communicator.fail(error, cuda_on_cpu::nccl_last_error());
    calls.error = error;
  }
  const ncclResult_t ended = ncclGroupEnd();
  return error != ncclSuccess ? error : ended;
}

// Two whose kernels share a device may wait for each other for ever, so the stand-in has one.
bool has_communicator(int device) {
  const std::lock_guard lock(communicators().mutex);
  for (const auto& one : communicators().all) {
    if (!one->ended() && one->device == device) return true;
  }
  return false;
}

std::string this_gpu(int device) {
  char host[40] = "";
  gethostname(host, sizeof host - 1);
  const char* const id = std::getenv("NCCL_HOSTID");
  return std::string(id ? id : host) + " GPU " + std::to_string(cuda_on_cpu::machine.gpus[device]);
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  static constexpr const char* kTexts[] = {"no error",
                                           "unhandled cuda error",
                                           "unhandled system error",
                                           "internal error",
                                           "invalid argument",
                                           "invalid usage",
                                           "remote process exited or there was a network error",
                                           "NCCL operation in progress"};
  return result < std::ssize(kTexts) ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  thread_local std::string text;
  text = cuda_on_cpu::nccl_last_error();
  return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  unsigned long long number = 0;
  *id = {};
  if (getrandom(&number, sizeof number, 0) != sizeof number) return ncclSystemError;
  std::snprintf(id->internal, sizeof id->internal, "%016llx", number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return ncclCommInitRankScalable(comm, size, rank, 1, &id, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int ids, ncclUniqueId* of_ids,
                                      ncclConfig_t* config) {
  if (const cudaError_t error = cuda_on_cpu::usable(); error != cudaSuccess)
    return nccl_error(ncclUnhandledCudaError, cudaGetErrorName(error));
  if (ids < 1 || ids > size || rank < 0 || rank >= size)
    return nccl_error(ncclInvalidArgument, "Invalid rank requested : " + std::to_string(rank));
  if (config->magic != kConfigMagic)
    return nccl_error(ncclInvalidArgument, "ncclConfig_t is not initialized via NCCL_CONFIG_INITIALIZER");
  if (config->blocking != 0)
    return nccl_error(ncclInvalidUsage, "this stand-in has no communicators that block");
  const int device = cuda_on_cpu::current_device();
  if (has_communicator(device))
    return nccl_error(ncclInvalidUsage, "this stand-in has one communicator on a device: abort the other");
  const std::lock_guard lock(communicators().mutex);
  communicators().all.push_back(std::make_unique<ncclComm>(rank, size, device));
  *comm = communicators().all.back().get();
  (*comm)->begin_init(of_ids[0], this_gpu(device));
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = alive(comm, "ncclCommGetAsyncError").state(true);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  alive(comm, "ncclCommAbort").abort();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++calls.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (calls.depth == 0) return nccl_error(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--calls.depth > 0) return ncclSuccess;
  Calls all = std::exchange(calls, {});
  if (all.error != ncclSuccess || !all.communicator) return all.error;
  all.communicator->begin_launch(std::move(all.group));
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message(comm, "Send", const_cast<void*>(data), count, type, peer, stream, true);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message(comm, "Recv", data, count, type, peer, stream, false);
}
