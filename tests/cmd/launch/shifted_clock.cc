// Preloaded into a program, makes it believe that it is SHIFTED_SECONDS later.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  const char* const seconds = std::getenv("SHIFTED_SECONDS");
  if (result == 0 && clock == CLOCK_REALTIME && seconds != nullptr) time->tv_sec += std::atol(seconds);
  return static_cast<int>(result);
}
