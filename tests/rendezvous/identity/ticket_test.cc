// The text of a ticket: who can read it back, and that nothing else can be made of it.
#include "rendezvous/identity/ticket.h"

#include <doctest/doctest.h>

#include <ctime>
#include <random>

#include "rendezvous/identity/base64.h"
#include "rendezvous/identity/credential.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::int64_t kUntil = 1763899200;  // 2025-11-23 12:00:00 UTC

TEST_CASE("a ticket's text says which run it opens, until when, and whose it is") {
  const JobKey store = JobKey::random();
  for (const std::string& run : {std::string("job7"), std::string(128, 'x')}) {
    const std::string text = Ticket::issue(store, run, kUntil).text();
    CAPTURE(text);
    CHECK(text.size() < 1500);
    const Result<Ticket> ticket = Ticket::parse("  " + text + "\n", "test");
    REQUIRE_MESSAGE(ticket.ok(), ticket.status().message());
    CHECK(ticket.value().run_id() == run);
    CHECK(ticket.value().until() == kUntil);
    CHECK(ticket.value().fingerprint() == store.fingerprint());
    CHECK(ticket.value().text() == text);
    CHECK(ticket.value().ending() == "the ticket for run " + run + " ended at 2025-11-23 12:00:00 UTC");
  }
}

TEST_CASE("a ticket does not tell the store's key, and two are not the same") {
  const JobKey store = JobKey::random();
  const std::string one = Ticket::issue(store, "job7", kUntil).text();
  CHECK(one.find(store.text().substr(5)) == std::string::npos);
  CHECK(Ticket::issue(store, "job7", kUntil).text() != one);
}

TEST_CASE("the lifetime reaches as far as a date does") {
  const std::int64_t far = 4102444800 + 86400;  // beyond 2050 a certificate writes its time otherwise
  CHECK(Ticket::issue(JobKey::random(), "job7", far).until() == far);
}

TEST_CASE("a ticket of which a letter was changed, or a part lost, is none, and is not repeated") {
  const std::string text = Ticket::issue(JobKey::random(), "job7", kUntil).text();
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string wrong = text;
    const std::size_t at = 5 + random() % (text.size() - 5);
    if (i % 3 == 0) wrong.erase(at);
    if (i % 3 == 1) wrong[at] = wrong[at] == 'A' ? 'B' : 'A';
    if (i % 3 == 2) wrong.insert(at, "A");
    const Result<Ticket> ticket = Ticket::parse(wrong, "DTRUN_TOKEN");
    CAPTURE(wrong);
    REQUIRE(!ticket.ok());
    CHECK(ticket.status().exit_code() == kExitNoPermission);
    CHECK(ticket.status().message().find(wrong.substr(0, 30)) == std::string::npos);
  }
}

TEST_CASE("parts of two tickets are not a third") {
  const JobKey store = JobKey::random();
  const auto bytes_of = [&](const std::string& run) {
    return from_base64url(Ticket::issue(store, run, kUntil).text().substr(5)).value();
  };
  const auto parses = [](const std::string& bytes) {
    const auto* const from = reinterpret_cast<const unsigned char*>(bytes.data());
    return Ticket::parse("dtt1_" + to_base64url(from, bytes.size()), "test").ok();
  };
  const std::string one = bytes_of("job7"), two = bytes_of("job8");
  const auto without_key = [](const std::string& bytes) { return bytes.substr(0, bytes.size() - 32); };
  REQUIRE(parses(one));
  CHECK(!parses(without_key(one) + two.substr(two.size() - 32)));
  CHECK(!parses(without_key(one)));
  CHECK(!parses(one + "x"));
}

TEST_CASE("a credential is a ticket or a key, by how it begins") {
  const JobKey key = JobKey::random();
  const Ticket ticket = Ticket::issue(key, "job7", kUntil);
  const Result<Credential> one = Credential::parse(key.text(), "test"),
                           two = Credential::parse(ticket.text(), "test");
  REQUIRE((one.ok() && two.ok()));
  CHECK((one.value().key() != nullptr && one.value().ticket() == nullptr));
  CHECK((two.value().key() == nullptr && two.value().ticket() != nullptr));
  CHECK(one.value().fingerprint() == two.value().fingerprint());
  CHECK(two.value().text() == ticket.text());
  CHECK(!Credential::parse("dtt1_", "test").ok());
  CHECK(!Credential::parse("dtt2_" + ticket.text().substr(5, 8), "test").ok());
}

}  // namespace
}  // namespace dtrun::rendezvous
