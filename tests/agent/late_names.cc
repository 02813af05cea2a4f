// Preloaded into an agent: a name service that learns after three questions that all names are this
// machine's.
#include <dlfcn.h>
#include <netdb.h>

#include <atomic>

extern "C" int getaddrinfo(const char*, const char* service, const addrinfo* hints, addrinfo** found) {
  static std::atomic<int> asked = 0;
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (++asked <= 3) return EAI_NONAME;
  return real("127.0.0.1", service, hints, found);
}
