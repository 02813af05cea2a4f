#include "rendezvous/identity/job_key.h"

#include <doctest/doctest.h>

#include <string>

namespace dtrun::rendezvous::job_key_test {
namespace {

const std::string kText = "dtk1_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";  // bytes 0, 1, … 31

JobKey key_of(const std::string& text) {
  Result<JobKey> key = JobKey::parse(text, "test");
  REQUIRE_MESSAGE(key.ok(), key.status().message());
  return std::move(key).value();
}

std::string refusal(const std::string& text) {
  const Result<JobKey> key = JobKey::parse(text, "/home/ada/key");
  if (key.ok()) return "";
  CHECK(key.status().exit_code() == kExitNoPermission);
  CHECK(key.status().message().starts_with("/home/ada/key: "));
  if (text.size() > 8) CHECK(key.status().message().find(text) == std::string::npos);
  return key.status().message();
}

TEST_CASE("a key is a line of text, and the text a key") {
  CHECK(key_of(kText).text() == kText);
  CHECK(key_of("\n " + kText + "\r\n").text() == kText);
  const JobKey random = JobKey::random();
  CHECK(random.text().size() == 48);
  CHECK(key_of(random.text()) == random);
  CHECK(!(JobKey::random() == random));
}

TEST_CASE("what is cut off, misspelt or too easy to guess is refused, and not repeated") {
  CHECK(refusal("").find("there is no key") != std::string::npos);
  CHECK(refusal("  \n").find("there is no key") != std::string::npos);
  CHECK(refusal(kText.substr(0, 40)).find("cut off") != std::string::npos);
  CHECK(refusal(kText + "A").find("cut off, or too long") != std::string::npos);
  std::string other = kText;
  other.back() = '9';  // bits beyond the last byte
  CHECK(refusal(other).find("misspelt") != std::string::npos);
  other.back() = '=';
  CHECK(refusal(other).find("misspelt") != std::string::npos);
  CHECK(refusal("hunter2").find("too easy to guess") != std::string::npos);
  CHECK(refusal("0123456789abcd").find("too easy to guess") != std::string::npos);  // 53 bits at most
  CHECK(refusal(std::string(1000, 'a')).find("too easy to guess") != std::string::npos);
  CHECK(refusal("correct horse battery staple, twice over").find("more than one word") != std::string::npos);
}

TEST_CASE("any other secret that is long enough is a key") {
  const std::string secret = "J4x0q7mYw2kVbZr8cTn5sHd3fLg6pQ1u/eR9+aXo";
  CHECK(key_of(secret) == key_of(secret + "\n"));
  CHECK(!(key_of(secret) == key_of(secret + "x")));
  CHECK(key_of("0123456789abcdef0123456789abcdef").text() ==
        key_of("0123456789abcdef0123456789abcdef").text());
}

TEST_CASE("what follows from a key never changes") {
  // The two ends of a connection may be of two versions. Worked out by openssl(1), too:
  // openssl kdf -keylen 4 -kdfopt digest:SHA256 -kdfopt hexkey:000102…1f -kdfopt salt:"dtrun job key 1"
  //   -kdfopt info:fingerprint HKDF
  CHECK(key_of(kText).fingerprint() == "6f485689");
  CHECK(JobKey::random().fingerprint() != JobKey::random().fingerprint());
  // The key of a secret that dtrun did not make, computed by Python:
  // hkdf(hashlib.scrypt(b"J4x0...", salt=b"dtrun job key 2", n=1<<17, r=8, p=1, maxmem=1<<28, dklen=32),
  // "secret")
  CHECK(key_of("J4x0q7mYw2kVbZr8cTn5sHd3fLg6pQ1u/eR9+aXo").text() ==
        "dtk1_XXmw4Zh7DD7QJHYjHAJVCki9tgqEcNzTPJElD1DWtDs");
}

}  // namespace
}  // namespace dtrun::rendezvous::job_key_test
