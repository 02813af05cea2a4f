// The functions that code compiled with -fsanitize=thread calls for each of its loads and stores. That
// sanitizer's library is not linked: here they are counted (traffic.h).
#include <cstddef>

#include "tests/cuda_on_cpu/traffic.h"

using cuda_on_cpu::loaded;
using cuda_on_cpu::stored;

// The names are the compiler's.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** /*object*/, void* /*table*/) {}
void __tsan_vptr_read(void** /*object*/) {}
void __tsan_read_range(void* from, std::size_t bytes) { loaded(from, bytes); }
void __tsan_write_range(void* to, std::size_t bytes) { stored(to, bytes); }
#define DTRUN_LOADS_AND_STORES(bytes)                                    \
  void __tsan_read##bytes(void* from) { loaded(from, bytes); }           \
  void __tsan_write##bytes(void* to) { stored(to, bytes); }              \
  void __tsan_unaligned_read##bytes(void* from) { loaded(from, bytes); } \
  void __tsan_unaligned_write##bytes(void* to) { stored(to, bytes); }
DTRUN_LOADS_AND_STORES(1)
DTRUN_LOADS_AND_STORES(2)
DTRUN_LOADS_AND_STORES(4)
DTRUN_LOADS_AND_STORES(8)
DTRUN_LOADS_AND_STORES(16)
int __tsan_atomic32_load(const volatile int* from, int /*order*/) {
  return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_compare_exchange_strong(volatile int* at, int* expected, int wanted, int /*order*/,
                                            int /*order_of_failure*/) {
  return __atomic_compare_exchange_n(at, expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
