// The text of a scoped token: its content, and the refusal of changed texts.
#include "rendezvous/identity/scoped_token.h"

#include <doctest/doctest.h>
#include <openssl/evp.h>

#include <array>
#include <ctime>
#include <random>

#include "rendezvous/identity/base64.h"
#include "rendezvous/identity/credential.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::int64_t kUntil = 1763899200;  // 2025-11-23 12:00:00 UTC

TEST_CASE("a scoped token's text says which run it opens, until when, and whose it is") {
  const JobKey store = JobKey::random();
  for (const std::string& run : {std::string("job7"), std::string(128, 'x')}) {
    const std::string text = ScopedToken::issue(store, run, kUntil).text();
    CAPTURE(text);
    CHECK(text.size() < 1500);
    const Result<ScopedToken> token = ScopedToken::parse("  " + text + "\n", "test");
    REQUIRE_MESSAGE(token.ok(), token.status().message());
    CHECK(token.value().run_id() == run);
    CHECK(token.value().until() == kUntil);
    CHECK(token.value().fingerprint() == store.fingerprint());
    CHECK(token.value().text() == text);
    CHECK(token.value().ending() == "the scoped token for run " + run + " ended at 2025-11-23 12:00:00 UTC");
  }
}

TEST_CASE("a scoped token does not tell the store's key, and two are not the same") {
  const JobKey store = JobKey::random();
  const std::string one = ScopedToken::issue(store, "job7", kUntil).text();
  CHECK(one.find(store.text().substr(5)) == std::string::npos);
  CHECK(ScopedToken::issue(store, "job7", kUntil).text() != one);
}

TEST_CASE("the lifetime reaches as far as a date does") {
  const std::int64_t far = 4102444800 + 86400;  // beyond 2050 a certificate writes its time otherwise
  CHECK(ScopedToken::issue(JobKey::random(), "job7", far).until() == far);
}

TEST_CASE("a scoped token of which a letter was changed, or a part lost, is none, and is not repeated") {
  const std::string text = ScopedToken::issue(JobKey::random(), "job7", kUntil).text();
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string wrong = text;
    const std::size_t at = 5 + random() % (text.size() - 5);
    if (i % 3 == 0) wrong.erase(at);
    if (i % 3 == 1) wrong[at] = wrong[at] == 'A' ? 'B' : 'A';
    if (i % 3 == 2) wrong.insert(at, "A");
    const Result<ScopedToken> token = ScopedToken::parse(wrong, "DTRUN_KEY");
    CAPTURE(wrong);
    REQUIRE(!token.ok());
    CHECK(token.status().exit_code() == kExitNoPermission);
    CHECK(token.status().message().find(wrong.substr(0, 30)) == std::string::npos);
  }
}

TEST_CASE("parts of two scoped tokens are not a third") {
  const JobKey store = JobKey::random();
  const auto bytes_of = [&](const std::string& run) {
    return from_base64url(ScopedToken::issue(store, run, kUntil).text().substr(5)).value();
  };
  const auto parses = [](const std::string& bytes) {
    const auto* const from = reinterpret_cast<const unsigned char*>(bytes.data());
    return ScopedToken::parse("dtt2_" + to_base64url(from, bytes.size()), "test").ok();
  };
  const std::string one = bytes_of("job7"), two = bytes_of("job8");
  const auto checked = [](std::string bytes) {
    std::array<unsigned char, 32> digest{};
    EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
    return bytes + std::string(reinterpret_cast<const char*>(digest.data()), 8);
  };
  const auto certificates = [](const std::string& bytes) { return bytes.substr(0, bytes.size() - 40); };
  const auto key = [](const std::string& bytes) { return bytes.substr(bytes.size() - 40, 32); };
  REQUIRE(parses(one));
  REQUIRE(parses(checked(certificates(one) + key(one))));
  CHECK(!parses(checked(certificates(one) + key(two))));
  CHECK(!parses(checked(certificates(one))));
  CHECK(!parses(certificates(one) + key(one)));
  CHECK(!parses(one + "x"));
}

TEST_CASE("a credential is a scoped token or a key, by how it begins") {
  const JobKey key = JobKey::random();
  const ScopedToken token = ScopedToken::issue(key, "job7", kUntil);
  const Result<Credential> one = Credential::parse(key.text(), "test"),
                           two = Credential::parse(token.text(), "test");
  REQUIRE((one.ok() && two.ok()));
  CHECK((one.value().key() != nullptr && one.value().token() == nullptr));
  CHECK((two.value().key() == nullptr && two.value().token() != nullptr));
  CHECK(one.value().fingerprint() == two.value().fingerprint());
  CHECK(two.value().text() == token.text());
  CHECK(!Credential::parse("dtt2_", "test").ok());
  CHECK(Credential::parse("dtt1_" + token.text().substr(5), "test")
            .status()
            .message()
            .find("no scoped token") != std::string::npos);
  CHECK(!Credential::parse("dtt3_" + token.text().substr(5, 8), "test").ok());
}

}  // namespace
}  // namespace dtrun::rendezvous
