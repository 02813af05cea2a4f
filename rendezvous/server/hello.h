// The first message of a connection to a server with a key, TLS' client hello, as far as it is examined
// before gRPC sees it. It may come from any unauthenticated peer. Pure.
#pragma once

namespace dtrun::rendezvous {

// How it looks: `first`, and the number of bytes that came so far.
enum class Greeting {
  kMore,
  kHello,
  kPlain,  // gRPC without TLS: a node that has no key
  kOther,
};
constexpr int kGreetingBytes = 6;
Greeting greeting_of(const unsigned char* first, int available);

}  // namespace dtrun::rendezvous
