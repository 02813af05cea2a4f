// Certificates are looked at as a peer does: by a TLS handshake between two of them in memory.
#include "rendezvous/identity/identity.h"

#include <doctest/doctest.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>

namespace dtrun::rendezvous::identity_test {
namespace {

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using Session = std::unique_ptr<SSL, decltype(&SSL_free)>;

template <typename T>
std::unique_ptr<T, void (*)(T*)> read(const std::string& pem,
                                      T* (*reader)(BIO*, T**, pem_password_cb*, void*), void (*release)(T*)) {
  BIO* const memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  T* const object = reader(memory, nullptr, nullptr, nullptr);
  BIO_free(memory);
  REQUIRE(object != nullptr);
  return {object, release};
}

// As gRPC's credentials are made: the root alone is trusted, both sides show a certificate.
Context context_of(const Identity& identity, const SSL_METHOD* method) {
  Context context(SSL_CTX_new(method), SSL_CTX_free);
  BIO* const roots = BIO_new_mem_buf(identity.root.data(), static_cast<int>(identity.root.size()));
  while (X509* const root = PEM_read_bio_X509(roots, nullptr, nullptr, nullptr)) {
    REQUIRE(X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), root) == 1);
    X509_free(root);
  }
  BIO_free(roots);
  const auto certificate = read<X509>(identity.certificate, PEM_read_bio_X509, X509_free);
  const auto key = read<EVP_PKEY>(identity.private_key, PEM_read_bio_PrivateKey, EVP_PKEY_free);
  REQUIRE(SSL_CTX_use_certificate(context.get(), certificate.get()) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return context;
}

// Whether both sides are content; *issuer: of the server's certificate, as the client sees it.
bool shake_hands(const Context& client_context, const Identity& server_identity,
                 std::string* issuer = nullptr) {
  const Context server_context = context_of(server_identity, TLS_server_method());
  const Session client(SSL_new(client_context.get()), SSL_free);
  const Session server(SSL_new(server_context.get()), SSL_free);
  SSL_set1_host(client.get(), kCertifiedName);
  BIO *here = nullptr, *there = nullptr;
  REQUIRE(BIO_new_bio_pair(&here, 0, &there, 0) == 1);
  SSL_set_bio(client.get(), here, here);
  SSL_set_bio(server.get(), there, there);
  SSL_set_connect_state(client.get());
  SSL_set_accept_state(server.get());
  bool done = false;
  for (int turn = 0; turn < 20 && !done; ++turn) {
    const int from_client = SSL_do_handshake(client.get());
    const int from_server = SSL_do_handshake(server.get());
    done = from_client == 1 && from_server == 1;
  }
  ERR_clear_error();
  if (issuer != nullptr) {
    X509* const certificate = SSL_get0_peer_certificate(client.get());
    char name[100] = "";
    if (certificate != nullptr)
      X509_NAME_get_text_by_NID(X509_get_issuer_name(certificate), NID_commonName, name, sizeof name);
    *issuer = name;
  }
  return done;
}

bool shake_hands(const Identity& client_identity, const Identity& server_identity,
                 std::string* issuer = nullptr) {
  return shake_hands(context_of(client_identity, TLS_client_method()), server_identity, issuer);
}

TEST_CASE("processes that have the same key trust each other") {
  const JobKey key = JobKey::random();
  const Identity one = make_identity(key), other = make_identity(key);
  CHECK(shake_hands(one, other));
  CHECK(shake_hands(other, one));
  // Each has a secret of its own.
  CHECK(one.private_key != other.private_key);
}

TEST_CASE("another key is refused on both sides, and told by its fingerprint") {
  const JobKey key = JobKey::random();
  const Identity one = make_identity(key), unauthenticated = make_identity(JobKey::random());
  CHECK(!shake_hands(unauthenticated, one));
  CHECK(!shake_hands(one, unauthenticated));
  std::string issuer;
  CHECK(shake_hands(one, make_identity(key), &issuer));
  CHECK(fingerprint_in(issuer) == key.fingerprint());
  CHECK(fingerprint_in("Let's Encrypt") == "");
}

// `identity`'s certificate as an authority: one that it has signed for another process, and the chain to it.
Context context_of_a_third(const Identity& identity) {
  const auto member = read<X509>(identity.certificate, PEM_read_bio_X509, X509_free);
  const auto signer = read<EVP_PKEY>(identity.private_key, PEM_read_bio_PrivateKey, EVP_PKEY_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> own(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> third(X509_dup(member.get()), X509_free);
  REQUIRE(X509_set_issuer_name(third.get(), X509_get_subject_name(member.get())) == 1);
  REQUIRE(ASN1_INTEGER_set(X509_get_serialNumber(third.get()), 7) == 1);
  REQUIRE(X509_set_pubkey(third.get(), own.get()) == 1);
  REQUIRE(X509_sign(third.get(), signer.get(), EVP_sha256()) > 0);
  Context context = context_of(identity, TLS_client_method());
  REQUIRE(SSL_CTX_use_certificate(context.get(), third.get()) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(context.get(), own.get()) == 1);
  REQUIRE(SSL_CTX_add1_chain_cert(context.get(), member.get()) == 1);
  return context;
}

TEST_CASE("a certificate of the job cannot make others") {
  const JobKey key = JobKey::random();
  const Identity member = make_identity(key);
  CHECK(!shake_hands(context_of_a_third(member), make_identity(key)));
}

TEST_CASE("keys near the ends of the range give identities, too") {
  for (const char* const text : {"dtk1_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                                 "dtk1___________________________________________8"}) {
    const Result<JobKey> key = JobKey::parse(text, "test");
    REQUIRE_MESSAGE(key.ok(), key.status().message());
    CHECK(shake_hands(make_identity(key.value()), make_identity(key.value())));
  }
}

}  // namespace
}  // namespace dtrun::rendezvous::identity_test
