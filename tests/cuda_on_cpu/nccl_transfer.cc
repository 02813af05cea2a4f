#include "tests/cuda_on_cpu/nccl_transfer.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/nccl_plan.h"

namespace cuda_on_cpu {

Transfer::Transfer(std::shared_ptr<Communicator> communicator, Work work, std::uint64_t group)
    : communicator_(std::move(communicator)), work_(std::move(work)), group_(group) {}

Progress Transfer::ask() {
  const std::lock_guard lock(communicator_->links_mutex_);
  if (communicator_->aborted_) {
    spoil();
    return Progress::kDone;
  }
  if (!begun_) begin();
  if (stuck_ || !is_ready()) return Progress::kNone;
  if (nccl_plan.seed != 0 && communicator_->random(4) == 0) return Progress::kNone;
  const DeviceMemoryOpen open;
  std::vector<int> order(peers_.size());
  std::iota(order.begin(), order.end(), 0);
  if (nccl_plan.seed != 0) {
    for (std::size_t i = 1; i < order.size(); ++i) std::swap(order[i], order[communicator_->random(i + 1)]);
  }
  bool moved = false;
  for (const int rank : order) moved |= move(rank);
  while (phase_ < work_.phases.size() && phase_is_done()) {
    moved = true;
    if (work_.phases[phase_].then) work_.phases[phase_].then();
    ++phase_;
    if (phase_ < work_.phases.size()) begin_phase();
  }
  if (phase_ == work_.phases.size()) return Progress::kDone;
  return moved ? Progress::kSome : Progress::kNone;
}

void Transfer::begin() {
  begun_ = true;
  peers_.resize(static_cast<std::size_t>(communicator_->size));
  const DeviceMemoryOpen open;
  if (phase_ < work_.phases.size()) begin_phase();
  stuck_ = has_fault();
}

bool Transfer::has_fault() {
  const auto planned = [&](NcclFaultKind kind) { return nccl_fault(kind, communicator_->rank, group_); };
  if (planned(NcclFaultKind::kDies)) die();
  if (const NcclFault* const fault = planned(NcclFaultKind::kBreaksDevice)) {
    break_device(static_cast<cudaError_t>(fault->error));
    return true;
  }
  if (const NcclFault* const fault = planned(NcclFaultKind::kAsyncError)) {
    communicator_->fail(static_cast<ncclResult_t>(fault->error), "a planned fault");
    return true;
  }
  return planned(NcclFaultKind::kSilent) != nullptr;
}

void Transfer::die() {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank].out.empty()) continue;
    const Message& first = peers_[rank].out.front();
    const int fd = communicator_->links_[rank].data.fd();
    send(fd, &first.header, sizeof first.header, MSG_NOSIGNAL);
    send(fd, first.piece.data, first.piece.bytes / 2, MSG_NOSIGNAL | MSG_DONTWAIT);
    break;
  }
  kill(getpid(), SIGKILL);
}

void Transfer::begin_phase() {
  const Phase& phase = work_.phases[phase_];
  for (const Piece& piece : phase.sends) {
    if (piece.peer != communicator_->rank) peers_[piece.peer].out.push_back({piece, {group_, piece.bytes}});
  }
  for (const Piece& piece : phase.receives) {
    if (piece.peer != communicator_->rank) peers_[piece.peer].in.push_back({piece, {}});
  }
  copy_to_itself();
}

// Copies the pieces that this rank sends to itself: as many receives as sends, of the same sizes.
void Transfer::copy_to_itself() {
  const Phase& phase = work_.phases[phase_];
  auto to = phase.receives.begin();
  for (const Piece& from : phase.sends) {
    if (from.peer != communicator_->rank) continue;
    to =
        std::find_if(to, phase.receives.end(), [&](const Piece& p) { return p.peer == communicator_->rank; });
    std::memmove(to->data, from.data, from.bytes);
    ++to;
  }
}

// Whether something can be moved. Looks without opening device memory, which takes long.
bool Transfer::is_ready() const {
  std::vector<pollfd> ends;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.gone) continue;
    const short events =
        static_cast<short>((peer.out.empty() ? 0 : POLLOUT) | (peer.in.empty() ? 0 : POLLIN));
    if (events != 0) ends.push_back({communicator_->links_[rank].data.fd(), events, 0});
  }
  return poll(ends.data(), ends.size(), 0) > 0 || phase_ == work_.phases.size() || phase_is_done();
}

bool Transfer::move(int rank) {
  const bool out = move_out(rank), in = move_in(rank);
  return out || in;
}

bool Transfer::move_out(int rank) {
  Peer& peer = peers_[rank];
  bool moved = false;
  while (!peer.out.empty() && !peer.gone) {
    Message& message = peer.out.front();
    const std::size_t header = sizeof message.header, all = header + message.piece.bytes;
    const char* const from = message.moved < header
                                 ? reinterpret_cast<const char*>(&message.header) + message.moved
                                 : message.piece.data + (message.moved - header);
    const std::size_t left = (message.moved < header ? header : all) - message.moved;
    if (left > 0) {
      const ssize_t n =
          send(communicator_->links_[rank].data.fd(), from, at_most(left), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (n < 0) {
        lose(rank);
        break;
      }
      message.moved += static_cast<std::size_t>(n);
      moved = true;
    }
    if (message.moved == all) peer.out.pop_front();
  }
  return moved;
}

bool Transfer::move_in(int rank) {
  Peer& peer = peers_[rank];
  bool moved = false;
  while (!peer.in.empty() && !peer.gone && !stuck_) {
    Message& message = peer.in.front();
    const std::size_t header = sizeof message.header, all = header + message.piece.bytes;
    char* const to = message.moved < header ? reinterpret_cast<char*>(&message.header) + message.moved
                                            : message.piece.data + (message.moved - header);
    const std::size_t left = (message.moved < header ? header : all) - message.moved;
    if (left > 0) {
      const ssize_t n = recv(communicator_->links_[rank].data.fd(), to, at_most(left), MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (n <= 0) {
        lose(rank);
        break;
      }
      message.moved += static_cast<std::size_t>(n);
      moved = true;
      if (message.moved == header) stuck_ = !fits(rank, message);
    }
    if (message.moved == all && !stuck_) peer.in.pop_front();
  }
  return moved;
}

bool Transfer::phase_is_done() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& p) { return p.out.empty() && p.in.empty(); });
}

bool Transfer::fits(int rank, const Message& message) {
  if (message.header.bytes == message.piece.bytes) return true;
  const std::string why = "rank " + std::to_string(communicator_->rank) + " receives " +
                          std::to_string(message.piece.bytes) + " bytes from rank " + std::to_string(rank) +
                          " in its group " + std::to_string(group_) + ", which sends " +
                          std::to_string(message.header.bytes) + " in its group " +
                          std::to_string(message.header.group);
  std::fprintf(stderr, "cuda_on_cpu: NCCL: %s\n", why.c_str());
  communicator_->fail(ncclInvalidUsage, why);
  return false;
}

// A rank's end is closed. The operation never ends, as a kernel that waits for it does not.
void Transfer::lose(int rank) {
  peers_[rank].gone = true;
  if (!communicator_->notices_deaths()) return;
  communicator_->fail(ncclRemoteError, "the connection to rank " + std::to_string(rank) + " is closed");
}

std::size_t Transfer::at_most(std::size_t bytes) {
  return nccl_plan.seed == 0 ? bytes : std::min<std::size_t>(bytes, 1 + communicator_->random(65536));
}

// Fills results with NaN, so that a use of data that was not received gives NaN.
void Transfer::spoil() {
  const DeviceMemoryOpen open;
  for (const Piece& result : work_.results) std::memset(result.data, 0xff, result.bytes);
}

}  // namespace cuda_on_cpu
