#include "rendezvous/identity/identity.h"

#include <openssl/conf.h>
#include <openssl/ec.h>
#include <openssl/ssl.h>

#include <string_view>

#include "rendezvous/identity/certificates.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::string_view kIssuer = "dtrun job ";

}  // namespace

// gRPC makes the SSL_CTX and gives no access to it, so the settings go into the configuration that OpenSSL
// applies to every new one.
void set_up_tls() {
  static const bool done = [] {
    constexpr std::string_view kText =
        "openssl_conf = parts\n[parts]\nssl_conf = contexts\n[contexts]\nsystem_default = "
        "all\n[all]\nProtocol = -ALL, TLSv1.3\nNumTickets = 0\n";
    OPENSSL_load_builtin_modules();
    OPENSSL_init_ssl(OPENSSL_INIT_LOAD_CONFIG, nullptr);  // the system's, which would come later and win
    const Owned<CONF, NCONF_free> configuration(NCONF_new(nullptr));
    const Owned<BIO, BIO_free_all> text(BIO_new_mem_buf(kText.data(), static_cast<int>(kText.size())));
    long line = 0;
    return NCONF_load_bio(configuration.get(), text.get(), &line) > 0 &&
           CONF_modules_load(configuration.get(), nullptr, 0) > 0;
  }();
  check(done);
}

std::string issuer_of(const std::string& fingerprint) { return std::string(kIssuer) + fingerprint; }

std::string fingerprint_in(const std::string& issuer) {
  return issuer.starts_with(kIssuer) ? issuer.substr(kIssuer.size()) : "";
}

Identity make_identity(const JobKey& job) {
  const Authority authority = authority_of(job);
  const Key own(EVP_EC_gen("P-256"));
  check(own != nullptr);
  const Certificate leaf = certificate_for(own, kCertifiedName, authority);
  return {.root = pem(authority.root.get()), .certificate = pem(leaf.get()), .private_key = pem(own.get())};
}

}  // namespace dtrun::rendezvous
