// X.509 certificates under the authority that follows from a job's key, made with OpenSSL. For this folder
// alone.
#pragma once

#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
template <typename T, auto kFree>
using Owned = std::unique_ptr<T, Free<kFree>>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Owned<X509, X509_free>;
using Number = Owned<BIGNUM, BN_free>;

// Ends the process if OpenSSL failed where it does so for want of memory alone, or if this folder is wrong.
void check(bool done);

// The P-256 key with the secret number; null if the number is 0 or not below the curve's order.
Key key_of(const BIGNUM* secret);

struct Authority {
  Key key;
  Certificate root;
  std::string name;  // of the subject, and the issuer's name in certificates that it signs
};
// The authority over holders of the key, and the one over holders of a store's scoped tokens, which only
// stores trust.
enum class AuthorityFor { kMembers, kScopedTokens };
Authority authority_of(const JobKey& job, AuthorityFor purpose = AuthorityFor::kMembers);

// Valid since the year 2000 to the end of 9999.
inline constexpr std::int64_t kForever = 253402300799;  // seconds since 1970

// A process' certificate, not signed yet: it may sign in a handshake, and nothing else. `until`: seconds
// since 1970.
Certificate unsigned_leaf(const Key& key, const std::string& subject, const Authority& authority,
                          std::int64_t until = kForever);
void add_extension(X509* certificate, X509* issuer, int kind, const char* value);
void sign(const Certificate& certificate, const Authority& authority);

std::string pem(X509* certificate);
std::string pem(EVP_PKEY* key);

std::string common_name(const X509_NAME* name);  // in UTF-8

}  // namespace dtrun::rendezvous
