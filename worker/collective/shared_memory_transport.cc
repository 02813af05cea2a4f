#include "worker/collective/shared_memory_transport.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <new>
#include <random>
#include <string>
#include <system_error>
#include <thread>

#include "worker/base/error.h"
#include "worker/base/host_identity.h"
#include "worker/base/pulse.h"
#include "worker/collective/tags.h"

namespace dtrun::worker {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using BoardWord = std::atomic<std::uint32_t>;
static_assert(BoardWord::is_always_lock_free && sizeof(BoardWord) == sizeof(std::uint32_t));

namespace {

// A rank has at most two blocks on each level of the tree.
constexpr std::size_t kMostBlocks = 128;

// The sleep of a wait before each look whether the process group was aborted, and the number of sleeps before
// each look whether the peer lives.
constexpr milliseconds kNap{2};
constexpr int kNapsPerLook = 10;
// A peer that is about to be ready is faster than the kernel's wake-up of a sleeper.
constexpr int kLooksBeforeSleep = 50;

// Sleeps for a nap, or until the next announcement; not at all if `news` is not `seen` any more.
void sleep_for_news(const BoardWord& news, std::uint32_t seen) {
  const timespec nap{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kNap).count()};
  syscall(SYS_futex, &news, FUTEX_WAIT, seen, &nap, nullptr, 0);
}

Operation reading(int rank, int bucket) {
  return {.kind = Operation::Kind::kReceive, .bucket = bucket, .peer = rank};
}

bool ended(int process) {
  pollfd end{.fd = process, .events = POLLIN, .revents = 0};
  return poll(&end, 1, 0) == 1;
}

// The address of a rank's memory.
struct Address {
  std::array<char, 120> host{};  // all zero: no rank may read the memory
  std::uint64_t nonce = 0;       // equals its board's
  std::int32_t process = 0, descriptor = -1;
};

}  // namespace

// A rank's announcements to the others: the first buffer in its memory, all zero at first. Words are numbers
// of steps.
struct SharedMemoryTransport::Board {
  struct Bucket {
    BoardWord partials, totals;  // the step whose partial sums or total are there
  };
  std::uint64_t nonce;
  std::uint64_t totals;                                        // offset of the buffer
  BoardWord news;                                              // changes with each announcement
  BoardWord done;                                              // the step of whose data this rank reads no
                                                               // more
  BoardWord gone;                                              // not 0: the rank's part in this generation is
                                                               // over
  std::array<std::atomic<std::uint64_t>, kMostBlocks> blocks;  // offsets of this step's partial sums

  const Bucket& bucket(int index) const { return reinterpret_cast<const Bucket*>(this + 1)[index]; }
  Bucket& bucket(int index) { return reinterpret_cast<Bucket*>(this + 1)[index]; }
};

SharedMemoryTransport::SharedMemoryTransport(ProcessGroup& group, std::size_t size, std::size_t buckets,
                                             milliseconds patience)
    : group_(group),
      size_(size),
      buckets_(buckets),
      patience_(patience),
      board_memory_(memory_.allocate(board_floats())),
      board_(*new (board_memory_.data()) Board),
      totals_(memory_.allocate(size)),
      peers_(static_cast<std::size_t>(group.size())) {
  board_.totals = memory_.offset_of(totals_.data());
  board_.nonce = std::random_device()() | std::uint64_t{std::random_device()()} << 32;

  std::vector<Address> addresses(peers_.size());
  Address& own = addresses[static_cast<std::size_t>(group.rank())];
  own.nonce = board_.nonce, own.process = getpid(), own.descriptor = memory_.descriptor();
  const std::string host = host_identity();
  if (host.size() < own.host.size()) std::ranges::copy(host, own.host.begin());
  group_.all_gather(bytes_of(addresses));

  // Two ranks share memory if each can read the other's.
  std::vector<char> own_answers(peers_.size()), answers(peers_.size());
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Address& address = addresses[rank];
    hosts_.push_back(address.host[0] != 0 ? address.host.data() : "the host of rank " + std::to_string(rank));
    if (&address == &own || own.host[0] == 0 || address.host != own.host) continue;
    open(peers_[rank], address.process, address.descriptor, address.nonce);
    own_answers[rank] = peers_[rank].memory != nullptr;
    const int peer = static_cast<int>(rank);
    sends.push_back(
        {.peer = peer, .tag = kTagNeighbour, .bytes = std::as_bytes(std::span(&own_answers[rank], 1))});
    receives.push_back(
        {.peer = peer, .tag = kTagNeighbour, .bytes = std::as_writable_bytes(std::span(&answers[rank], 1))});
  }
  group_.start(sends, receives)->wait();
  for (std::size_t rank = 0; rank < peers_.size(); ++rank)
    if (answers[rank] == 0) peers_[rank].memory.reset();
}

SharedMemoryTransport::~SharedMemoryTransport() {
  announce(board_.gone, 1);
  for (const SharedPeer& peer : peers_)
    if (peer.process >= 0) close(peer.process);
}

bool SharedMemoryTransport::any() const {
  return std::ranges::any_of(peers_, [](const SharedPeer& peer) { return peer.memory != nullptr; });
}

std::size_t SharedMemoryTransport::board_floats() const {
  return (sizeof(Board) + buckets_ * sizeof(Board::Bucket)) / sizeof(float);
}

void SharedMemoryTransport::open(SharedPeer& peer, pid_t process, int descriptor, std::uint64_t nonce) const {
  std::unique_ptr<PeerMemory> memory = PeerMemory::open(process, descriptor);
  const int watched = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (memory == nullptr || watched < 0) return;
  const auto* const board = reinterpret_cast<const Board*>(memory->at(0, board_floats()));
  peer.process = watched;
  if (board->nonce != nonce) return;
  peer.board = board;
  peer.memory = std::move(memory);
}

void SharedMemoryTransport::announce(BoardWord& word, std::uint32_t value) {
  word.store(value, std::memory_order_release);
  board_.news.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &board_.news, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

// Aborts first, since the handler of the exception may free the memory of messages under way.
void SharedMemoryTransport::lose(int rank, const std::string& why) {
  group_.abort();
  throw WorkerError(kExitWorkerPeerLost,
                    "lost rank " + std::to_string(group_.global_rank(rank)) + ": " + why);
}

template <typename Ready>
void SharedMemoryTransport::wait_for(int rank, const Operation& what, const Ready& ready) {
  const SharedPeer& peer = peers_[static_cast<std::size_t>(rank)];
  for (int look = 0; look < kLooksBeforeSleep; ++look) {
    if (ready(*peer.board)) return;
    std::this_thread::yield();
  }
  const Pulse::WaitsForPeers alive;
  const OperationLog::Wait written(what);
  const Clock::time_point begin = Clock::now();
  for (int naps = 1;; ++naps) {
    const std::uint32_t seen = peer.board->news.load(std::memory_order_acquire);
    if (ready(*peer.board)) return;
    group_.check();
    // Announcements that the peer made before it left or ended count.
    const bool left = peer.board->gone.load(std::memory_order_acquire) != 0;
    if (left && !ready(*peer.board)) lose(rank, "it has left");
    if (naps % kNapsPerLook == 0) {
      if (ended(peer.process) && !ready(*peer.board)) lose(rank, "its process has ended");
      if (Clock::now() - begin > patience_) lose(rank, "it says nothing any more");
    }
    sleep_for_news(peer.board->news, seen);
  }
}

void SharedMemoryTransport::begin_step() {
  group_.check();
  const std::uint32_t before = step_++;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (!shares_with(rank)) continue;
    // The peer may be at a later step: no rank waits for one without leaves.
    wait_for(rank, {.kind = Operation::Kind::kSend, .peer = rank}, [&](const Board& board) {
      return static_cast<std::int32_t>(board.done.load(std::memory_order_acquire) - before) >= 0;
    });
  }
}

void SharedMemoryTransport::publish_partials(int bucket, std::span<const float* const> blocks) {
  if (blocks.size() > kMostBlocks) throw WorkerError(kExitSoftware, "a rank has too many blocks of the tree");
  for (std::size_t i = 0; i < blocks.size(); ++i)
    board_.blocks[i].store(memory_.offset_of(blocks[i]), std::memory_order_relaxed);
  announce(board_.bucket(bucket).partials, step_);
}

const float* SharedMemoryTransport::partial(int rank, int bucket, std::size_t block) {
  wait_for(rank, reading(rank, bucket), [&](const Board& board) {
    return board.bucket(bucket).partials.load(std::memory_order_acquire) == step_;
  });
  const SharedPeer& peer = peers_[static_cast<std::size_t>(rank)];
  return peer.memory->at(peer.board->blocks[block].load(std::memory_order_relaxed), size_);
}

void SharedMemoryTransport::publish_total(int bucket) { announce(board_.bucket(bucket).totals, step_); }

const float* SharedMemoryTransport::total(int rank, int bucket) {
  wait_for(rank, reading(rank, bucket), [&](const Board& board) {
    return board.bucket(bucket).totals.load(std::memory_order_acquire) == step_;
  });
  const SharedPeer& peer = peers_[static_cast<std::size_t>(rank)];
  return peer.memory->at(peer.board->totals, size_);
}

void SharedMemoryTransport::end_step() { announce(board_.done, step_); }

}  // namespace dtrun::worker
