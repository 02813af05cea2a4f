// Ranges of NVTX, in the domain "dtrun": what the host does, for tools such as Nsight Systems. Without a tool
// each is the test of a pointer.
#pragma once

namespace dtrun::worker::cuda::nvtx {

// Whether a tool listens.
bool attached();

// On the calling thread, whose ranges lie within each other. `name` is copied.
void push(const char* name);
void pop();

// The text of `name` is read at once.
class Range {
 public:
  explicit Range(const char* name) { push(name); }
  ~Range() { pop(); }
  Range(const Range&) = delete;
};

}  // namespace dtrun::worker::cuda::nvtx
