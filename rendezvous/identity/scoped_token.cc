#include "rendezvous/identity/scoped_token.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <array>
#include <ctime>
#include <utility>

#include "proto/core/text.h"
#include "rendezvous/identity/authorization.h"
#include "rendezvous/identity/base64.h"
#include "rendezvous/identity/certificates.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kCheckBytes = 8;

// Detects a changed letter: only the store could check the certificate's signature.
std::string check_of(std::string_view bytes) {
  std::array<unsigned char, 32> digest{};
  check(EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  return {reinterpret_cast<const char*>(digest.data()), kCheckBytes};
}

std::string der(X509* certificate) {
  unsigned char* bytes = nullptr;
  const int size = i2d_X509(certificate, &bytes);
  check(size > 0);
  std::string text(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  return text;
}

// The parts in a scoped token's bytes; null if missing.
struct Parts {
  Certificate root, leaf;
  Key key;
};

Parts parts_of(const std::string& bytes) {
  Parts parts;
  if (bytes.size() < kCheckBytes) return parts;
  const std::string_view checked(bytes.data(), bytes.size() - kCheckBytes);
  if (!bytes.ends_with(check_of(checked))) return parts;
  const auto* at = reinterpret_cast<const unsigned char*>(checked.data());
  const unsigned char* const end = at + checked.size();
  for (Certificate* const certificate : {&parts.root, &parts.leaf})
    certificate->reset(d2i_X509(nullptr, &at, static_cast<long>(end - at)));
  if (parts.root && parts.leaf && end - at == kSecretBytes) {
    const Number secret(BN_bin2bn(at, kSecretBytes, BN_secure_new()));
    parts.key = key_of(secret.get());
  }
  ERR_clear_error();
  return parts;
}

// True if every part belongs to the next.
bool belong_together(const Parts& parts) {
  if (!parts.root || !parts.leaf || !parts.key) return false;
  EVP_PKEY* const authority = X509_get0_pubkey(parts.root.get());
  EVP_PKEY* const own = X509_get0_pubkey(parts.leaf.get());
  const std::string issuer = common_name(X509_get_subject_name(parts.root.get()));
  const bool together = authority != nullptr && own != nullptr && EVP_PKEY_eq(own, parts.key.get()) == 1 &&
                        X509_verify(parts.root.get(), authority) == 1 &&
                        common_name(X509_get_issuer_name(parts.leaf.get())).starts_with(issuer);
  ERR_clear_error();
  return together;
}

}  // namespace

ScopedToken ScopedToken::issue(const JobKey& store, const std::string& run_id, std::int64_t until) {
  const Authority authority = authority_of(store, AuthorityFor::kScopedTokens);
  const Key own(EVP_EC_gen("P-256"));
  check(own != nullptr);
  const Certificate leaf = unsigned_leaf(own, token_name(run_id), authority, until);
  add_extension(leaf.get(), authority.root.get(), NID_ext_key_usage, "critical,clientAuth");
  sign(leaf, authority);
  BIGNUM* number = nullptr;
  check(EVP_PKEY_get_bn_param(own.get(), OSSL_PKEY_PARAM_PRIV_KEY, &number) == 1);
  const Number secret(number);
  std::array<unsigned char, kSecretBytes> scalar{};
  check(BN_bn2binpad(secret.get(), scalar.data(), kSecretBytes) == kSecretBytes);
  ScopedToken token;
  std::string bytes = der(authority_of(store).root.get()) + der(leaf.get()) +
                      std::string(reinterpret_cast<const char*>(scalar.data()), kSecretBytes);
  bytes += check_of(bytes);
  check(token.read(std::move(bytes)));
  OPENSSL_cleanse(scalar.data(), scalar.size());
  return token;
}

Result<ScopedToken> ScopedToken::parse(std::string_view text, const std::string& source) {
  const auto refuse = [&](const std::string& why) {
    return Status(kExitNoPermission,
                  source + ": " + why + "; take the line again that `dtrun store token` printed");
  };
  text = trimmed(text);
  if (!text.starts_with(kPrefix)) return refuse("this is no scoped token");
  std::optional<std::string> bytes = from_base64url(text.substr(kPrefix.size()));
  ScopedToken token;
  if (!bytes || !token.read(*std::move(bytes))) return refuse("the scoped token is misspelt or cut off");
  return token;
}

bool ScopedToken::read(std::string bytes) {
  bytes_ = std::move(bytes);
  const Parts parts = parts_of(bytes_);
  if (!belong_together(parts)) return false;
  const std::optional<std::string> run = run_of(common_name(X509_get_subject_name(parts.leaf.get())));
  std::tm end{};
  if (!run || ASN1_TIME_to_tm(X509_get0_notAfter(parts.leaf.get()), &end) != 1) return false;
  run_id_ = *run;
  until_ = timegm(&end);
  fingerprint_ = fingerprint_in(common_name(X509_get_subject_name(parts.root.get())));
  return !fingerprint_.empty();
}

std::string ScopedToken::text() const {
  return std::string(kPrefix) +
         to_base64url(reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
}

std::string ScopedToken::ending() const {
  return "the scoped token for run " + run_id_ + " ended at " + utc_text(until_, "%F %T UTC");
}

Identity ScopedToken::identity() const {
  const Parts parts = parts_of(bytes_);
  return {.root = pem(parts.root.get()),
          .certificate = pem(parts.leaf.get()),
          .private_key = pem(parts.key.get())};
}

ScopedToken::~ScopedToken() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

}  // namespace dtrun::rendezvous
