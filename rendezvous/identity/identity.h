// Proves in TLS that a process holds the job's key. Both ends of a connection derive the same certificate
// authority from the key; each process makes itself a certificate under it. So only the key has to be
// distributed, no two processes share a private key, and the handshake of an unauthenticated peer fails.
#pragma once

#include <string>

#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// The host name in every certificate, which clients ask for: a peer is proven by the key, not by its address.
inline constexpr const char* kCertifiedName = "dtrun";

// Text in PEM. Certificates are valid from 2000 to 9999: hosts' clocks are not compared.
struct Identity {
  std::string root;         // the authority's certificate
  std::string certificate;  // this process'
  std::string private_key;  // this process'; leave it in memory
};

// Makes a fresh one, in about a millisecond.
Identity make_identity(const JobKey& key);

// From now on both ends of this process' connections speak TLS 1.3 and nothing older, and servers issue no
// session tickets: dtrun resumes no session, since a resumed one would not be asked for its certificate
// again, and OpenSSL 3.0 spends a sixth of a handshake on the tickets.
void set_up_tls();

// The fingerprint of the key behind a certificate, read from its issuer's name; "" if dtrun did not issue it.
std::string fingerprint_in(const std::string& issuer);
std::string issuer_of(const std::string& fingerprint);

}  // namespace dtrun::rendezvous
