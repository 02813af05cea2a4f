// Preloaded into an agent: a name service that learns a second after the first question that all names are
// this machine's.
#include <dlfcn.h>
#include <netdb.h>

#include <chrono>

extern "C" int getaddrinfo(const char*, const char* service, const addrinfo* hints, addrinfo** found) {
  using Clock = std::chrono::steady_clock;
  static const auto first = Clock::now();
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (Clock::now() < first + std::chrono::seconds(1)) return EAI_NONAME;
  return real("127.0.0.1", service, hints, found);
}
