#include "rendezvous/identity/credential.h"

namespace dtrun::rendezvous {

Result<Credential> Credential::parse(std::string_view text, const std::string& source) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text.substr(begin).starts_with(Ticket::kPrefix)) {
    Result<Ticket> ticket = Ticket::parse(text, source);
    return ticket.ok() ? Result<Credential>(std::move(ticket).value()) : ticket.status();
  }
  Result<JobKey> key = JobKey::parse(text, source);
  return key.ok() ? Result<Credential>(std::move(key).value()) : key.status();
}

std::string Credential::text() const { return ticket() != nullptr ? ticket()->text() : key()->text(); }

std::string Credential::fingerprint() const {
  return ticket() != nullptr ? ticket()->fingerprint() : key()->fingerprint();
}

Identity Credential::identity() const {
  return ticket() != nullptr ? ticket()->identity() : make_identity(*key());
}

}  // namespace dtrun::rendezvous
