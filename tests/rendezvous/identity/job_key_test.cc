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
  for (const std::string text : {"hunter2", "0123456789abcdef0123456789abcde",
                                 "J4x0q7mYw2kVbZr8cTn5sHd3fLg6pQ1u", "0123456789abcdef 0123456789abcdef"})
    CHECK(refusal(text).find("this is no key") != std::string::npos);
  CHECK(refusal(std::string(1000, 'a')).find("too easy to guess") != std::string::npos);
}

TEST_CASE("hexadecimal digits that are enough are a key") {
  const std::string digits = "0123456789abcdef0123456789ABCDEF";
  CHECK(key_of(digits) == key_of(digits + "\n"));
  CHECK(!(key_of(digits) == key_of(digits + "0")));
}

TEST_CASE("tokens of pages follow from the key and the run") {
  CHECK(key_of(kText).page_token("a") == key_of(kText).page_token("a"));
  CHECK(key_of(kText).page_token("a") != key_of(kText).page_token(""));
  CHECK(key_of(kText).page_token("a") != JobKey::random().page_token("a"));
}

TEST_CASE("what follows from a key never changes") {
  // The two ends of a connection may be of two versions. Worked out by openssl(1), too:
  // openssl kdf -keylen 4 -kdfopt digest:SHA256 -kdfopt hexkey:000102…1f -kdfopt salt:"dtrun job key 1"
  //   -kdfopt info:fingerprint HKDF
  CHECK(key_of(kText).fingerprint() == "6f485689");
  CHECK(JobKey::random().fingerprint() != JobKey::random().fingerprint());
  // The key of digits is HKDF of them with info:secret, computed by Python's hmac.
  CHECK(key_of("0123456789abcdef0123456789abcdef").text() ==
        "dtk1_adsR9RnzYzMwl09M0FAAJlRygb7dLa1ydz0P8P_IAzM");
}

}  // namespace
}  // namespace dtrun::rendezvous::job_key_test
