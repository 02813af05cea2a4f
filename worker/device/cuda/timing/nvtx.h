// Ranges of NVTX, in the domain "dtrun": spans of the host's work, for tools such as Nsight Systems. Without
// a tool a range costs the test of a pointer.
#pragma once

namespace dtrun::worker::cuda::nvtx {

// Whether a tool is attached.
bool attached();

// Begins and ends a range of the calling thread, whose ranges are nested. `name` is copied.
void push(const char* name);
void pop();

// A range for a scope. `name` is copied.
class Range {
 public:
  explicit Range(const char* name) { push(name); }
  ~Range() { pop(); }
  Range(const Range&) = delete;
};

}  // namespace dtrun::worker::cuda::nvtx
