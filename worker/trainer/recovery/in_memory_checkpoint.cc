#include "worker/trainer/recovery/in_memory_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker/base/stop_point.h"
#include "worker/trainer/recovery/replica.h"

namespace dtrun::worker {
namespace {

InMemoryCheckpointFile::Shape shape_of(const Replica& replica, std::size_t record) {
  return {.vectors = 1 + replica.state.slots.size(),
          .floats = replica.program.size,
          .record = record,
          .job = text_hash(to_canonical_json(replica.config) + teacher_file(replica.program).sha256 +
                           replica.data.identity.contents)};
}

}  // namespace

InMemoryCheckpoint::InMemoryCheckpoint(Replica& replica, int descriptor)
    : replica_(replica),
      file_(descriptor, shape_of(replica, sizeof(Record))),
      pin_(replica.device->arithmetic().pin(file_.memory())) {
  static_assert(std::is_trivially_copyable_v<Record> &&
                sizeof(Record) <= InMemoryCheckpointFile::kLargestRecord);
  take_over();
  thread_ = std::thread([this] { run(); });
}

InMemoryCheckpoint::~InMemoryCheckpoint() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void InMemoryCheckpoint::take_over() {
  const std::optional<InMemoryCheckpointFile::Copy> found = file_.newest();
  if (!found) return;
  Record record;
  std::memcpy(&record, found->record.data(), sizeof record);
  Arithmetic& arithmetic = replica_.device->arithmetic();
  const float* from = found->values;
  for (float* const vector : replica_.vectors()) {
    arithmetic.copy(*replica_.stream, vector, from, replica_.program.size);
    from += replica_.program.size;
  }
  replica_.stream->wait();
  replica_.log = record.log;
  replica_.state.step = found->step;
  replica_.state.config_json = to_canonical_json(replica_.config);
  replica_.state.has_values = true;
  replica_.state.copied_in = record.generation;
}

void InMemoryCheckpoint::start(std::int64_t generation) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !copying_; });
  step_ = replica_.state.step;
  record_ = {.generation = generation, .log = replica_.log};
  updated_ = replica_.stream->record();
  reading_ = copying_ = true;
  changed_.notify_all();
}

void InMemoryCheckpoint::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !reading_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// The stream is made here, since a thread must select the GPU that it uses.
void InMemoryCheckpoint::run() {
  std::unique_ptr<Stream> stream;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return copying_ || closing_; });
    if (!copying_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (!stream) stream = replica_.device->arithmetic().make_stream();
      copy(*stream);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) failure_ = failure;
    reading_ = copying_ = false;
    changed_.notify_all();
  }
}

void InMemoryCheckpoint::has_read() {
  std::lock_guard lock(mutex_);
  reading_ = false;
  changed_.notify_all();
}

// The request does not change until copying_ is reset, so no lock is needed here.
void InMemoryCheckpoint::copy(Stream& stream) {
  Arithmetic& arithmetic = replica_.device->arithmetic();
  const std::size_t size = replica_.program.size;
  const bool in_pieces = arithmetic.device_is_host();  // hashes each piece while the cache holds it
  float* const begin = file_.begin();
  std::uint64_t hash = kNothingHashed;
  bool finite = true;
  stream.after(updated_);
  const std::vector<float*> vectors = replica_.vectors();
  if (!in_pieces) {
    for (std::size_t i = 0; i < vectors.size(); ++i)
      arithmetic.copy(stream, begin + i * size, vectors[i], size);
    stream.wait();
    has_read();
  }
  float* to = begin;
  for (const float* const vector : vectors) {
    const bool parameters = vector == replica_.state.parameters.data();
    for (std::size_t at = 0; at < size; at += kHashedAtOnce) {
      const std::size_t floats = std::min(kHashedAtOnce, size - at);
      if (in_pieces) arithmetic.copy(stream, to + at, vector + at, floats);
      if (parameters && !all_finite({to + at, floats})) finite = false;
      hash = add_to_hash(hash, {to + at, floats});
    }
    to += size;
    if (parameters) stop_point(StopPoint::kInMemoryCheckpointing);
  }
  if (finite) file_.publish(step_, std::as_bytes(std::span(&record_, 1)), hash);
  stop_point(StopPoint::kHostCopied);
}

}  // namespace dtrun::worker
