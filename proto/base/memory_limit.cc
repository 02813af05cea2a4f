#include "proto/base/memory_limit.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cstddef>

namespace dtrun {

std::optional<std::uint64_t> memory_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::uint64_t stack_of_a_thread() {
  pthread_attr_t attributes;
  std::size_t size = std::size_t{8} << 20;
  if (pthread_getattr_default_np(&attributes) != 0) return size;
  pthread_attr_getstacksize(&attributes, &size);
  pthread_attr_destroy(&attributes);
  return size;
}

void share_heap_under_limit() {
  if (memory_limit()) mallopt(M_ARENA_MAX, 1);
}

}  // namespace dtrun
