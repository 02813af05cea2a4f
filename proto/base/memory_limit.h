// The limit on a process's address space (ulimit -v), of which the stack of each thread takes its whole size.
#pragma once

#include <cstdint>
#include <optional>

namespace dtrun {

// In bytes; nothing: there is none.
std::optional<std::uint64_t> memory_limit();

// The size of the stack of a thread that asks for none, in bytes (ulimit -s).
std::uint64_t stack_of_a_thread();

// Under a limit on memory all threads share one heap from here on: each further one reserves 64 MiB, which a
// stack may need. Call before the first thread starts.
void share_heap_under_limit();

}  // namespace dtrun
