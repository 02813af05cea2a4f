// The device memory that each launch reads and writes, so that a test can compare it with the expected
// traffic. For matmuls, copies and fills it follows from their arguments. For kernels every load and store
// is recorded, if their files were compiled with -fsanitize=thread and linked with loads_and_stores.cc
// instead of that sanitizer's library. One of device memory that comes before the thread's
// wait_for_previous() ends the process, if the kernel was launched programmatically.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cuda_on_cpu {

struct Launch {
  std::string name;                   // a kernel's as in the source; "matmul", "copy" or "fill"
  double flops = 0;                   // a matmul's
  std::size_t read = 0, written = 0;  // bytes of device memory, each counted once
  std::size_t read_again = 0,
              written_again = 0;  // those of them that a kernel read, or wrote, more than once
  // What one of a kernel's threads loads, the most, every time that it does: its loads come one after the
  // other, however many threads there are.
  std::size_t loaded_by_a_thread = 0;  // bytes of device memory
};

// From now on launches are listed, in the order in which they are enqueued.
void list_launches();
// Those listed since. All that was enqueued must be done. Lists no more.
std::vector<Launch> listed_launches();

// For the stand-in: the number of a new entry, 0 if none is kept.
std::size_t list(Launch launch);

// While one of these lives, loads and stores of the calling thread are those of this entry.
class Watched {
 public:
  Watched(std::size_t launch, bool programmatic);
  ~Watched();
  Watched(const Watched&) = delete;
};

// Called by loads_and_stores.cc for each load or store.
void loaded(const void* from, std::size_t bytes);
void stored(const void* to, std::size_t bytes);

}  // namespace cuda_on_cpu
