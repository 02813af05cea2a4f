// What this process exchanges with its peers, as its agent would see it (worker/base/operation_log.h): a test
// that must act while something waits asks here.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include "worker/base/operation_log.h"

namespace dtrun::worker {

// From now on. A child of this process that exists already has its own.
class OwnOperations {
 public:
  OwnOperations() {
    const int memory = memfd_create("operations", MFD_CLOEXEC);
    if (ftruncate(memory, sizeof(OperationMemory)) != 0) throw std::bad_alloc();
    void* const mapped = mmap(nullptr, sizeof(OperationMemory), PROT_READ, MAP_SHARED, memory, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<const OperationMemory*>(mapped);
    OperationLog::open(memory);
  }
  OwnOperations(const OwnOperations&) = delete;

  std::optional<Operation> longest_wait() const { return dtrun::longest_wait(memory_->last.read()); }
  // How many receives from this peer are waited for.
  std::ptrdiff_t waits_for(int peer) const {
    return std::ranges::count_if(memory_->last.read(), [peer](const Operation& each) {
      return each.state == Operation::State::kWaits && each.kind == Operation::Kind::kReceive &&
             each.peer == peer;
    });
  }

 private:
  const OperationMemory* memory_;
};

}  // namespace dtrun::worker
