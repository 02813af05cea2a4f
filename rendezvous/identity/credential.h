// The credential that lets a process in: the job's key, or a ticket of a store.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "proto/core/status.h"
#include "rendezvous/identity/identity.h"
#include "rendezvous/identity/job_key.h"
#include "rendezvous/identity/ticket.h"

namespace dtrun::rendezvous {

class Credential {
 public:
  Credential(JobKey key) : held_(std::move(key)) {}        // NOLINT: implicit on purpose
  Credential(Ticket ticket) : held_(std::move(ticket)) {}  // implicit on purpose

  // Parses a JobKey or a Ticket, told apart by its prefix.
  static Result<Credential> parse(std::string_view text, const std::string& source);
  std::string text() const;

  const JobKey* key() const { return std::get_if<JobKey>(&held_); }     // null: a ticket
  const Ticket* ticket() const { return std::get_if<Ticket>(&held_); }  // null: a key
  const std::string& source() const { return source_; }  // where it was found, for people; "": unknown
  std::string fingerprint() const;  // of the key that it is, or that the ticket comes from
  Identity identity() const;
  // The host name for a client's hello: kCertifiedName, or member_name() of the clock's hour.
  std::string name_to_ask_for() const;

  bool operator==(const Credential& other) const { return text() == other.text(); }

 private:
  std::string source_;
  std::variant<JobKey, Ticket> held_;
};

}  // namespace dtrun::rendezvous
