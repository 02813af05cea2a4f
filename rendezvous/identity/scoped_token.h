// A scoped token of a shared `dtrun store` for one run: it opens that run, for a time, and nothing else. The
// store makes it from its key alone and does not remember it; it is a certificate of an authority of the
// store's for scoped tokens, with its private key, which names the run and may only be shown by a client to a
// store. One line of text, as secret as a key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/core/status.h"
#include "rendezvous/identity/identity.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::rendezvous {

class ScopedToken {
 public:
  static constexpr std::string_view kPrefix = "dtt2_";

  // `until`: in seconds since 1970, by the clock of the store.
  static ScopedToken issue(const JobKey& store, const std::string& run_id, std::int64_t until);

  // As text() writes it; space around it is ignored. A failure has EX_NOPERM and names `source`, never the
  // text. One that has ended is read like any other.
  static Result<ScopedToken> parse(std::string_view text, const std::string& source);

  // "dtt2_" and some thousand letters, digits, - and _.
  std::string text() const;

  const std::string& run_id() const { return run_id_; }
  std::int64_t until() const { return until_; }
  const std::string& fingerprint() const { return fingerprint_; }  // of the store's key

  // "the scoped token for run job7 ended at 2026-11-23 12:00:00 UTC"
  std::string ending() const;

  // Its root and certificate as TLS wants them.
  Identity identity() const;

  // Leave nothing in memory.
  ScopedToken(const ScopedToken&) = default;
  ScopedToken& operator=(const ScopedToken&) = default;
  ~ScopedToken();

 private:
  ScopedToken() = default;
  bool read(std::string bytes);  // false if they are invalid

  // DER: the root by which the store is known, the certificate; then the private key's 32 bytes; then 8 bytes
  // of the SHA-256 of all these.
  std::string bytes_;
  std::string run_id_;
  std::string fingerprint_;
  std::int64_t until_ = 0;
};

}  // namespace dtrun::rendezvous
