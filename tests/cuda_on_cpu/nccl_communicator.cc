#include "tests/cuda_on_cpu/nccl_communicator.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/nccl_plan.h"
#include "tests/cuda_on_cpu/nccl_transfer.h"

namespace cuda_on_cpu {
namespace {

// A launch comes when somebody looks whether it has come, or this late: a caller that assumes it to be done
// earlier records its events in front of it.
constexpr std::chrono::milliseconds kLaunchLatest{20};
constexpr std::uint64_t kRandomLaunchLatestUs = 3000;

struct LastError {
  std::mutex mutex;
  std::string text;  // guarded by mutex
};
LastError& last_nccl_error() {
  static LastError& error = *new LastError;
  return error;
}

[[noreturn]] void hang() {
  for (;;) pause();
}

}  // namespace

ncclResult_t nccl_error(ncclResult_t error, const std::string& why) {
  const std::lock_guard lock(last_nccl_error().mutex);
  last_nccl_error().text = why;
  return error;
}

std::string nccl_last_error() {
  const std::lock_guard lock(last_nccl_error().mutex);
  return last_nccl_error().text;
}

Communicator::Communicator(int of_rank, int of_size, int of_device, bool is_blocking)
    : rank(of_rank),
      size(of_size),
      device(of_device),
      blocking(is_blocking),
      random_(nccl_plan.seed * 1000 + static_cast<std::uint64_t>(of_rank)),
      connected_(static_cast<std::size_t>(of_size)) {}

ncclResult_t Communicator::state(bool poll) {
  const std::lock_guard lock(mutex_);
  const ncclResult_t state = state_;
  if (poll) {
    polled_ = true;
    changed_.notify_all();
  }
  return state;
}

void Communicator::fail(ncclResult_t error, const std::string& why) {
  nccl_error(error, why);
  const std::lock_guard lock(mutex_);
  if (state_ == ncclSuccess || state_ == ncclInProgress) state_ = error;
}

void Communicator::begin_init(std::vector<ncclUniqueId> ids, std::string gpu) {
  begin([this, ids = std::move(ids), gpu = std::move(gpu)] { return init(ids, gpu); });
}

void Communicator::begin_launch(Work work) {
  begin([this, work = std::move(work)] { return launch(work); });
}

void Communicator::begin_finalize() {
  {
    const std::lock_guard lock(mutex_);
    finalized_ = true;
  }
  begin([this] {
    wait_for_operations();
    return ncclSuccess;
  });
}

void Communicator::begin(std::function<ncclResult_t()> job) {
  {
    const std::lock_guard lock(mutex_);
    state_ = ncclInProgress;
    job_runs_ = true;
    polled_ = false;
  }
  std::thread([self = shared_from_this(), job = std::move(job)] {
    const ncclResult_t result = job();
    const std::lock_guard lock(self->mutex_);
    if (self->state_ == ncclInProgress) self->state_ = result;
    self->job_runs_ = false;
    self->changed_.notify_all();
  }).detach();
}

ncclResult_t Communicator::wait_for_job() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !job_runs_; });
  return state_;
}

bool Communicator::finalized() {
  const std::lock_guard lock(mutex_);
  return finalized_;
}

void Communicator::abort() {
  bool busy = false;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    busy = job_runs_;
    changed_.notify_all();
  }
  if (busy && nccl_fault(NcclFaultKind::kAbortBusyHangs, rank)) hang();
  if (nccl_fault(NcclFaultKind::kAbortHangs, rank)) hang();
  wait_for_job();
  wait_for_operations();
  close();
}

void Communicator::destroy() {
  wait_for_operations();
  aborted_ = true;
  close();
}

ncclResult_t Communicator::init(const std::vector<ncclUniqueId>& ids, const std::string& gpu) {
  if (nccl_fault(NcclFaultKind::kInitAbsent, rank)) return wait_until_aborted();
  if (const NcclFault* const fault = nccl_fault(NcclFaultKind::kInitFails, rank)) {
    return nccl_error(static_cast<ncclResult_t>(fault->error), "a planned fault");
  }
  Met met = meet({rank, size, ids, gpu}, [this] { return aborted_.load(); });
  if (met.result != ncclSuccess) return nccl_error(met.result, met.why);
  {
    const std::lock_guard lock(links_mutex_);
    links_ = std::move(met.links);
  }
  if (nccl_fault(NcclFaultKind::kInitStuck, rank)) return wait_until_aborted();
  return ncclSuccess;
}

ncclResult_t Communicator::launch(Work work) {
  const std::uint64_t group = ++groups_;
  count_nccl_group();
  if (nccl_fault(NcclFaultKind::kGroupStuck, rank, group)) return wait_until_aborted();
  if (!blocking) wait_before_launch();
  if (const ncclResult_t result = connect(work); result != ncclSuccess) return result;
  set_current_device(device);
  const cudaStream_t stream = work.stream;
  const auto transfer = std::make_shared<Transfer>(shared_from_this(), std::move(work), group);
  Operation operation;
  operation.ask = [transfer] { return transfer->ask(); };
  operation.launch = true;
  Point point;
  {
    const std::lock_guard lock(mutex_);
    if (last_.stream) operation.after = {last_};
  }
  const cudaError_t error = enqueue(stream, std::move(operation), false, &point);
  const std::lock_guard lock(mutex_);
  if (error != cudaSuccess) return nccl_error(ncclUnhandledCudaError, cudaGetErrorName(error));
  last_ = point;
  return ncclSuccess;
}

// The first time that two ranks send one way, both have to set it up.
ncclResult_t Communicator::connect(const Work& work) {
  const auto stop = [this] { return aborted_.load(); };
  std::vector<std::pair<int, bool>> wanted;
  for (const Phase& phase : work.phases) {
    for (const Piece& piece : phase.sends) wanted.emplace_back(piece.peer, true);
    for (const Piece& piece : phase.receives) wanted.emplace_back(piece.peer, false);
  }
  bool gone = false;
  for (const auto& [peer, sends] : wanted) {
    bool& mine = connected_[peer].mine[sends ? 1 : 0];
    if (peer == rank || mine) continue;
    mine = true;
    gone |= !send_all(links_[peer].control.fd(), sends ? "S" : "R", 1, stop);
  }
  for (const auto& [peer, sends] : wanted) {
    while (peer != rank && !gone && !connected_[peer].theirs[sends ? 0 : 1]) {
      char what = 0;
      gone = !receive_all(links_[peer].control.fd(), &what, 1, stop);
      if (!gone) connected_[peer].theirs[what == 'S' ? 1 : 0] = true;
    }
  }
  if (aborted_) return nccl_error(ncclInternalError, "aborted");
  return gone ? nccl_error(ncclRemoteError, "a rank is gone that is to be connected to") : ncclSuccess;
}

ncclResult_t Communicator::wait_until_aborted() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return aborted_.load(); });
  return nccl_error(ncclInternalError, "aborted");
}

void Communicator::wait_before_launch() {
  const std::chrono::microseconds random_time(nccl_plan.seed == 0 ? 0 : random(kRandomLaunchLatestUs));
  std::unique_lock lock(mutex_);
  if (nccl_plan.seed == 0) {
    changed_.wait_for(lock, kLaunchLatest, [&] { return polled_ || aborted_; });
  } else {
    changed_.wait_for(lock, random_time, [&] { return aborted_.load(); });
  }
}

void Communicator::wait_for_operations() {
  Point last;
  {
    const std::lock_guard lock(mutex_);
    last = last_;
  }
  if (last.stream) wait_for(last);
}

void Communicator::close() {
  const std::lock_guard lock(links_mutex_);
  links_.clear();
}

bool Communicator::notices_deaths() const {
  return nccl_plan.noticed == Deaths::kAll || (nccl_plan.noticed == Deaths::kSome && rank % 2 == 1);
}

std::uint64_t Communicator::random(std::uint64_t below) {
  const std::lock_guard lock(mutex_);
  return random_() % below;
}

}  // namespace cuda_on_cpu
