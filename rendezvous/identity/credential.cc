#include "rendezvous/identity/credential.h"

#include <ctime>

namespace dtrun::rendezvous {

Result<Credential> Credential::parse(std::string_view text, const std::string& source) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  // The prefix of a ticket of any version.
  if (begin != std::string_view::npos && text.substr(begin).starts_with(Ticket::kPrefix.substr(0, 3))) {
    Result<Ticket> ticket = Ticket::parse(text, source);
    if (!ticket.ok()) return ticket.status();
    Credential credential(std::move(ticket).value());
    credential.source_ = source;
    return credential;
  }
  Result<JobKey> key = JobKey::parse(text, source);
  if (!key.ok()) return key.status();
  Credential credential(std::move(key).value());
  credential.source_ = source;
  return credential;
}

std::string Credential::text() const { return ticket() != nullptr ? ticket()->text() : key()->text(); }

std::string Credential::fingerprint() const {
  return ticket() != nullptr ? ticket()->fingerprint() : key()->fingerprint();
}

Identity Credential::identity() const {
  return ticket() != nullptr ? ticket()->identity() : make_identity(*key());
}

std::string Credential::name_to_ask_for() const {
  return key() != nullptr ? member_name(*key(), std::time(nullptr)) : kCertifiedName;
}

}  // namespace dtrun::rendezvous
