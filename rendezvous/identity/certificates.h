// X.509 certificates under the authority that follows from a job's key, made with OpenSSL. For this folder
// alone.
#pragma once

#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

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

struct Authority {
  Key key;
  Certificate root;
  std::string name;  // of the subject, and the issuer's name in certificates that it signs
};
// The authority over holders of the key.
Authority authority_of(const JobKey& job);

// A process' certificate, as of the host with this name: it may sign in a handshake, and nothing else.
Certificate certificate_for(const Key& key, const std::string& host, const Authority& authority);

std::string pem(X509* certificate);
std::string pem(EVP_PKEY* key);

}  // namespace dtrun::rendezvous
