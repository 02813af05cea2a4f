// The first message of a connection to a server with a key, TLS' client hello, as far as it is examined
// before gRPC sees it. It may come from any unauthenticated peer. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace dtrun::rendezvous {

// How it looks: `first`, and the number of bytes that came so far.
enum class Greeting { kMore, kHello, kOther };
constexpr int kGreetingBytes = 6;
Greeting greeting_of(const unsigned char* first, int available);

// The host that a ClientHello asks for (server_name, RFC 6066); nothing if it asks for none, or has been cut
// off before.
std::optional<std::string> server_name_in(std::span<const unsigned char> hello);

}  // namespace dtrun::rendezvous
