#include "rendezvous/identity/certificates.h"

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "rendezvous/identity/identity.h"

namespace dtrun::rendezvous {
namespace {

// 2000-01-01, and the end of 9999: hosts' clocks are not compared.
constexpr std::int64_t kBegin = 946684800, kEnd = 253402300799;

// The P-256 key with the secret number, which is not 0 and below the curve's order.
Key key_of(const BIGNUM* secret) {
  const Owned<EC_GROUP, EC_GROUP_free> group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  const Owned<BN_CTX, BN_CTX_free> context(BN_CTX_secure_new());
  const Owned<EC_POINT, EC_POINT_free> point(EC_POINT_new(group.get()));
  check(EC_POINT_mul(group.get(), point.get(), secret, nullptr, nullptr, context.get()) == 1);
  std::array<unsigned char, 65> open{};
  check(EC_POINT_point2oct(group.get(), point.get(), POINT_CONVERSION_UNCOMPRESSED, open.data(), open.size(),
                           context.get()) == open.size());

  const Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free> builder(OSSL_PARAM_BLD_new());
  check(OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) == 1 &&
        OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, secret) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, open.data(), open.size()) ==
            1);
  const Owned<OSSL_PARAM, OSSL_PARAM_free> parameters(OSSL_PARAM_BLD_to_param(builder.get()));
  const Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> maker(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  check(EVP_PKEY_fromdata_init(maker.get()) == 1 &&
        EVP_PKEY_fromdata(maker.get(), &key, EVP_PKEY_KEYPAIR, parameters.get()) == 1);
  return Key(key);
}

// The private key that follows from the job's key: a number below the order of P-256, of 128 bits more than
// it needs, so that the remainder favours none (FIPS 186-5, appendix A.2.1).
Key authority_key(const JobKey& job) {
  const Owned<EC_GROUP, EC_GROUP_free> group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  const Owned<BN_CTX, BN_CTX_free> context(BN_CTX_secure_new());
  std::array<unsigned char, 48> bytes{};
  job.derive("certificate authority", bytes.data(), bytes.size());
  const Number wide(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), BN_secure_new()));
  OPENSSL_cleanse(bytes.data(), bytes.size());
  const Number below(BN_dup(EC_GROUP_get0_order(group.get()))), secret(BN_secure_new());
  check(wide && below && secret && BN_sub_word(below.get(), 1) == 1 &&
        BN_mod(secret.get(), wide.get(), below.get(), context.get()) == 1 &&
        BN_add_word(secret.get(), 1) == 1);
  return key_of(secret.get());
}

Owned<X509_NAME, X509_NAME_free> name_of(const std::string& text) {
  Owned<X509_NAME, X509_NAME_free> name(X509_NAME_new());
  check(X509_NAME_add_entry_by_NID(name.get(), NID_commonName, V_ASN1_UTF8STRING,
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()), -1, 0) == 1);
  return name;
}

// Not signed yet.
Certificate certificate_of(EVP_PKEY* key, const std::string& subject, const std::string& issuer) {
  Certificate certificate(X509_new());
  X509* const it = certificate.get();
  std::array<unsigned char, 16> serial{};
  check(RAND_bytes(serial.data(), serial.size()) == 1);
  serial[0] &= 0x7f;  // a positive number
  const Number number(BN_bin2bn(serial.data(), serial.size(), nullptr));
  check(it != nullptr && X509_set_version(it, X509_VERSION_3) == 1 &&
        BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(it)) != nullptr &&
        ASN1_TIME_set(X509_getm_notBefore(it), kBegin) != nullptr &&
        ASN1_TIME_set(X509_getm_notAfter(it), kEnd) != nullptr &&
        X509_set_subject_name(it, name_of(subject).get()) == 1 &&
        X509_set_issuer_name(it, name_of(issuer).get()) == 1 && X509_set_pubkey(it, key) == 1);
  return certificate;
}

void add_extension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  check(extension && X509_add_ext(certificate, extension.get(), -1) == 1);
}

void sign(const Certificate& certificate, const Authority& authority) {
  check(X509_sign(certificate.get(), authority.key.get(), EVP_sha256()) > 0);
}

template <typename Write>
std::string written(const Write& write) {
  const Owned<BIO, BIO_free_all> memory(BIO_new(BIO_s_secmem()));
  check(write(memory.get()) == 1);
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

}  // namespace

void check(bool done) {
  if (!done) std::abort();
}

Authority authority_of(const JobKey& job) {
  Authority authority{.key = authority_key(job), .root = nullptr, .name = issuer_of(job.fingerprint())};
  authority.root = certificate_of(authority.key.get(), authority.name, authority.name);
  X509* const root = authority.root.get();
  add_extension(root, root, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(root, root, NID_key_usage, "critical,keyCertSign");
  sign(authority.root, authority);
  return authority;
}

Certificate certificate_for(const Key& key, const std::string& host, const Authority& authority) {
  Certificate leaf = certificate_of(key.get(), host, authority.name);
  X509* const root = authority.root.get();
  add_extension(leaf.get(), root, NID_key_usage, "critical,digitalSignature");
  add_extension(leaf.get(), root, NID_subject_alt_name, ("DNS:" + host).c_str());
  sign(leaf, authority);
  return leaf;
}

std::string pem(X509* certificate) {
  return written([&](BIO* to) { return PEM_write_bio_X509(to, certificate); });
}

std::string pem(EVP_PKEY* key) {
  return written(
      [&](BIO* to) { return PEM_write_bio_PrivateKey(to, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

}  // namespace dtrun::rendezvous
