#include "rendezvous/identity/job_key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

#include "proto/core/text.h"
#include "rendezvous/identity/base64.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::string_view kPrefix = "dtk1_";
constexpr std::size_t kEncoded = (JobKey::kBytes * 8 + 5) / 6;
// Of a key in hexadecimal digits: a certificate lets an attacker check a guess. The least estimated entropy
// keeps out what a person would type; `openssl rand -hex 16` has at least 90 bits.
constexpr std::size_t kLeastDigits = 32;
constexpr double kLeastBits = 64;

// The entropy of a text whose letters were drawn as often as they occur in it.
double bits_of(std::string_view text) {
  std::map<char, int> counts;
  for (const char letter : text) ++counts[letter];
  const auto size = static_cast<double>(text.size());
  double bits = 0;
  for (const auto& [letter, count] : counts) bits += count * std::log2(size / count);
  return bits;
}

// RFC 5869, with SHA-256 and a salt of our own.
void hkdf(const void* secret, std::size_t secret_size, std::string_view info, unsigned char* out,
          std::size_t size) {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr),
                                                              EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(EVP_KDF_CTX_new(kdf.get()),
                                                                          EVP_KDF_CTX_free);
  char digest[] = "SHA256", salt[] = "dtrun job key 1";
  const auto bytes = [](const void* from, std::size_t count, const char* name) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<void*>(from), count);
  };
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      bytes(secret, secret_size, OSSL_KDF_PARAM_KEY), bytes(salt, sizeof salt - 1, OSSL_KDF_PARAM_SALT),
      bytes(info.data(), info.size(), OSSL_KDF_PARAM_INFO), OSSL_PARAM_construct_end()};
  // It fails for want of memory alone.
  if (!context || EVP_KDF_derive(context.get(), out, size, parameters) != 1) std::abort();
}

}  // namespace

JobKey JobKey::random() {
  JobKey key;
  if (getrandom(key.bytes_.data(), key.bytes_.size(), 0) != static_cast<ssize_t>(kBytes)) std::abort();
  return key;
}

Result<JobKey> JobKey::parse(std::string_view text, const std::string& source) {
  const auto refuse = [&](const std::string& why) {
    return Status(kExitNoPermission, source + ": " + why +
                                         "; a job key is \"dtk1_\" and 43 letters and digits, as `dtrun key` "
                                         "prints one, or at least 32 hexadecimal digits, as `openssl rand "
                                         "-hex 16` does");
  };
  text = trimmed(text);
  if (text.empty()) return refuse("there is no key");
  JobKey key;
  key.source_ = source;
  if (text.starts_with(kPrefix)) {
    if (text.size() != kPrefix.size() + kEncoded) return refuse("the key is cut off, or too long");
    std::optional<std::string> bytes = from_base64url(text.substr(kPrefix.size()));
    if (!bytes) return refuse("the key is misspelt");
    std::copy(bytes->begin(), bytes->end(), key.bytes_.begin());
    OPENSSL_cleanse(bytes->data(), bytes->size());
    return key;
  }
  if (text.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos ||
      text.size() < kLeastDigits)
    return refuse("this is no key");
  if (bits_of(text) < kLeastBits) return refuse("this key is too easy to guess");
  hkdf(text.data(), text.size(), "secret", key.bytes_.data(), kBytes);
  return key;
}

std::string JobKey::text() const { return std::string(kPrefix) + to_base64url(bytes_.data(), kBytes); }

std::string JobKey::fingerprint() const {
  std::array<unsigned char, 4> bytes{};
  derive("fingerprint", bytes.data(), bytes.size());
  return hexadecimal(bytes);
}

std::string JobKey::page_token(const std::string& run_id) const {
  std::array<unsigned char, 16> bytes{};
  derive("dtrun page of run " + run_id, bytes.data(), bytes.size());
  return hexadecimal(bytes);
}

void JobKey::derive(std::string_view purpose, unsigned char* bytes, std::size_t size) const {
  hkdf(bytes_.data(), kBytes, purpose, bytes, size);
}

JobKey::~JobKey() { OPENSSL_cleanse(bytes_.data(), kBytes); }

}  // namespace dtrun::rendezvous
