// Who holds a job's key, as TLS can check it. Both ends of a connection work out the same certificate
// authority from the key; each process makes itself a certificate under it. So nothing but the key is handed
// around, no two processes share a private key, and a stranger ends in the handshake.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

// The host name in every certificate, which clients ask for: what proves a peer is the key, not its address.
inline constexpr const char* kCertifiedName = "dtrun";

// The host name that who has the key asks for in its hello, where everybody can read it: 32 digits that
// follow from the key and the hour of its clock (`now`: seconds since 1970), and ".member.dtrun". It lets a
// gate tell members from others before a handshake. Who heard it can say it too, for some hours, and still
// ends there.
std::string member_name(const JobKey& key, std::int64_t now);

// Those names of the hour, the last and the next. One thread.
class MemberNames {
 public:
  explicit MemberNames(const JobKey& key) : key_(key) {}
  bool contain(std::string_view name, std::int64_t now);

 private:
  JobKey key_;
  std::int64_t hour_ = -1;
  std::array<std::string, 3> names_;
};

// Text as PEM has it. Certificates are valid from 2000 to 9999: hosts' clocks are not compared.
struct Identity {
  std::string root;         // the authority's certificate
  std::string certificate;  // this process'
  std::string private_key;  // likewise; leave it in memory
};

// Makes a fresh one, in about a millisecond.
Identity make_identity(const JobKey& key);
// The same of a `dtrun store`, which lets in who has a ticket too.
Identity make_identity_of_store(const JobKey& key);

// From now on both ends of this process' connections speak TLS 1.3 and nothing older, and servers hand out no
// session tickets: nobody resumes a session here, which would not be asked for its certificate again, and
// OpenSSL 3.0 spends a sixth of a handshake on them.
void set_up_tls();

// When a certificate ends, as PEM has it: seconds since 1970; nothing if it is none.
std::optional<std::int64_t> end_of_certificate(std::string_view pem);

// The fingerprint of the key behind a certificate, as its issuer's name has it; "" if it is none of ours.
std::string fingerprint_in(const std::string& issuer);
std::string issuer_of(const std::string& fingerprint);

}  // namespace dtrun::rendezvous
