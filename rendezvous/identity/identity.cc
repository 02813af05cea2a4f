#include "rendezvous/identity/identity.h"

#include <openssl/ec.h>
#include <openssl/x509v3.h>

#include <string_view>

#include "rendezvous/identity/certificates.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::string_view kIssuer = "dtrun job ";

}  // namespace

std::string issuer_of(const std::string& fingerprint) { return std::string(kIssuer) + fingerprint; }

std::string fingerprint_in(const std::string& issuer) {
  return issuer.starts_with(kIssuer) ? issuer.substr(kIssuer.size()) : "";
}

Identity make_identity(const JobKey& job) {
  const Authority authority = authority_of(job);
  const Key own(EVP_EC_gen("P-256"));
  check(own != nullptr);
  const Certificate leaf = unsigned_leaf(own, kCertifiedName, authority);
  add_extension(leaf.get(), authority.root.get(), NID_subject_alt_name, "DNS:dtrun");
  sign(leaf, authority);
  return {.root = pem(authority.root.get()), .certificate = pem(leaf.get()), .private_key = pem(own.get())};
}

}  // namespace dtrun::rendezvous
