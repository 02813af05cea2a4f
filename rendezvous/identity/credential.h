// The credential that lets a process in: the job's key, or a scoped token of a store.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "proto/core/status.h"
#include "rendezvous/identity/identity.h"
#include "rendezvous/identity/job_key.h"
#include "rendezvous/identity/scoped_token.h"

namespace dtrun::rendezvous {

class Credential {
 public:
  Credential(JobKey key) : held_(std::move(key)) {}           // NOLINT: implicit on purpose
  Credential(ScopedToken token) : held_(std::move(token)) {}  // implicit on purpose

  // Parses a JobKey or a ScopedToken, told apart by its prefix.
  static Result<Credential> parse(std::string_view text, const std::string& source);
  std::string text() const;

  const JobKey* key() const { return std::get_if<JobKey>(&held_); }              // null: a scoped token
  const ScopedToken* token() const { return std::get_if<ScopedToken>(&held_); }  // null: a key
  const std::string& source() const { return source_; }  // where it was found, for people; "": unknown
  std::string fingerprint() const;  // of the key that it is, or that the scoped token comes from
  Identity identity() const;
  // The host name for a client's hello: kCertifiedName, or member_name() of the clock's hour.
  std::string name_to_ask_for() const;

  bool operator==(const Credential& other) const { return text() == other.text(); }

 private:
  std::string source_;
  std::variant<JobKey, ScopedToken> held_;
};

}  // namespace dtrun::rendezvous
