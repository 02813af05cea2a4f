#include "rendezvous/identity/credential.h"

#include <ctime>

namespace dtrun::rendezvous {

Result<Credential> Credential::parse(std::string_view text, const std::string& source) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  // The prefix of a scoped token of any version.
  if (begin != std::string_view::npos && text.substr(begin).starts_with(ScopedToken::kPrefix.substr(0, 3))) {
    ASSIGN_OR_RETURN(const ScopedToken token, ScopedToken::parse(text, source));
    Credential credential(token);
    credential.source_ = source;
    return credential;
  }
  ASSIGN_OR_RETURN(const JobKey key, JobKey::parse(text, source));
  Credential credential(key);
  credential.source_ = source;
  return credential;
}

std::string Credential::text() const { return token() != nullptr ? token()->text() : key()->text(); }

std::string Credential::fingerprint() const {
  return token() != nullptr ? token()->fingerprint() : key()->fingerprint();
}

Identity Credential::identity() const {
  return token() != nullptr ? token()->identity() : make_identity(*key());
}

std::string Credential::name_to_ask_for() const {
  return key() != nullptr ? member_name(*key(), std::time(nullptr)) : kCertifiedName;
}

}  // namespace dtrun::rendezvous
