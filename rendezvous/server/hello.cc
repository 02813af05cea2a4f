#include "rendezvous/server/hello.h"

#include <cstring>

namespace dtrun::rendezvous {

// RFC 8446, sections 4 and 5.1: a record of the kind "handshake", of a version 3.x, that begins with a
// ClientHello.
Greeting greeting_of(const unsigned char* first, int available) {
  constexpr unsigned char kHandshake = 22, kClientHello = 1;
  constexpr int kHeader = 5, kMost = 1 << 14;
  if (available >= kGreetingBytes && std::memcmp(first, "PRI * ", kGreetingBytes) == 0)
    return Greeting::kPlain;
  if (available > 0 && first[0] != kHandshake) return Greeting::kOther;
  if (available > 1 && first[1] != 3) return Greeting::kOther;
  if (available < kGreetingBytes) return Greeting::kMore;
  const int length = first[3] << 8 | first[4];
  if (length < 4 || length > kMost || first[5] != kClientHello) return Greeting::kOther;
  return available < kHeader + length ? Greeting::kMore : Greeting::kHello;
}

}  // namespace dtrun::rendezvous
