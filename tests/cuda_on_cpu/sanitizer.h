// The sanitizer that watches this build; GCC and clang say it differently.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define CUDA_ON_CPU_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define CUDA_ON_CPU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDA_ON_CPU_ASAN 1
#elif __has_feature(thread_sanitizer)
#define CUDA_ON_CPU_TSAN 1
#endif
#endif

#if defined(CUDA_ON_CPU_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(CUDA_ON_CPU_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

// Code that switches fibers works on the state of all of them in turn. To ThreadSanitizer these are threads
// without a lock, so it must not look.
#define CUDA_ON_CPU_UNSEEN __attribute__((no_sanitize("thread")))

namespace cuda_on_cpu {

// To ThreadSanitizer, what the caller did so far comes before what follows an acquired(place) of another
// fiber.
CUDA_ON_CPU_UNSEEN inline void released([[maybe_unused]] void* place) {
#if defined(CUDA_ON_CPU_TSAN)
  __tsan_release(place);
#endif
}
CUDA_ON_CPU_UNSEEN inline void acquired([[maybe_unused]] void* place) {
#if defined(CUDA_ON_CPU_TSAN)
  __tsan_acquire(place);
#endif
}

// AddressSanitizer reports every access to a poisoned byte.
inline void poison([[maybe_unused]] const void* begin, [[maybe_unused]] unsigned long bytes) {
#if defined(CUDA_ON_CPU_ASAN)
  __asan_poison_memory_region(begin, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* begin, [[maybe_unused]] unsigned long bytes) {
#if defined(CUDA_ON_CPU_ASAN)
  __asan_unpoison_memory_region(begin, bytes);
#endif
}

}  // namespace cuda_on_cpu
