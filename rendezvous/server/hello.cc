#include "rendezvous/server/hello.h"

#include <algorithm>
#include <cstddef>

namespace dtrun::rendezvous {
namespace {

using Bytes = std::span<const unsigned char>;

constexpr std::size_t kRecordHeader = 5;

// Takes the next `size` bytes off the front; fewer if there are not so many.
Bytes take(Bytes& from, std::size_t size) {
  const Bytes taken = from.first(std::min(size, from.size()));
  from = from.subspan(taken.size());
  return taken;
}

std::size_t take_number(Bytes& from, std::size_t size) {
  std::size_t number = 0;
  for (const unsigned char byte : take(from, size)) number = number << 8 | byte;
  return number;
}

// A vector behind its length, which has the given number of bytes (RFC 8446, section 3.4).
Bytes take_vector(Bytes& from, std::size_t length_bytes) {
  return take(from, take_number(from, length_bytes));
}

}  // namespace

// RFC 8446, sections 4 and 5.1: a record of the kind "handshake", of a version 3.x, that begins with a
// ClientHello.
Greeting greeting_of(const unsigned char* first, int available) {
  constexpr unsigned char kHandshake = 22, kClientHello = 1;
  constexpr int kHeader = kRecordHeader, kMost = 1 << 14;
  if (available > 0 && first[0] != kHandshake) return Greeting::kOther;
  if (available > 1 && first[1] != 3) return Greeting::kOther;
  if (available < kGreetingBytes) return Greeting::kMore;
  const int length = first[3] << 8 | first[4];
  if (length < 4 || length > kMost || first[5] != kClientHello) return Greeting::kOther;
  return available < kHeader + length ? Greeting::kMore : Greeting::kHello;
}

// RFC 8446, section 4.1.2, and RFC 6066, section 3.
std::optional<std::string> server_name_in(Bytes hello) {
  constexpr std::size_t kTypeAndLength = 4, kVersionAndRandom = 34, kServerName = 0, kHostName = 0;
  take(hello, kRecordHeader + kTypeAndLength + kVersionAndRandom);
  take_vector(hello, 1);  // session id
  take_vector(hello, 2);  // ciphers
  take_vector(hello, 1);  // compression
  Bytes extensions = take_vector(hello, 2);
  while (!extensions.empty()) {
    const bool is_it = take_number(extensions, 2) == kServerName;
    Bytes extension = take_vector(extensions, 2);
    if (!is_it) continue;
    Bytes names = take_vector(extension, 2);
    if (names.empty() || take_number(names, 1) != kHostName) return std::nullopt;
    const Bytes name = take_vector(names, 2);
    return std::string(name.begin(), name.end());
  }
  return std::nullopt;
}

}  // namespace dtrun::rendezvous
