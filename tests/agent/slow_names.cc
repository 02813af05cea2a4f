// Preloaded into an agent: a name service that never answers.
#include <netdb.h>
#include <unistd.h>

#include <cstdio>

extern "C" int getaddrinfo(const char* name, const char*, const addrinfo*, addrinfo**) {
  std::fprintf(stderr, "looking up %s\n", name);
  for (;;) pause();
}
