#include "rendezvous/identity/credential.h"

#include <ctime>

namespace dtrun::rendezvous {

Result<Credential> Credential::parse(std::string_view text, const std::string& source) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  // The prefix of a scoped token of any version.
  if (begin != std::string_view::npos && text.substr(begin).starts_with(ScopedToken::kPrefix.substr(0, 3))) {
    Result<ScopedToken> token = ScopedToken::parse(text, source);
    if (!token.ok()) return token.status();
    Credential credential(std::move(token).value());
    credential.source_ = source;
    return credential;
  }
  Result<JobKey> key = JobKey::parse(text, source);
  if (!key.ok()) return key.status();
  Credential credential(std::move(key).value());
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
