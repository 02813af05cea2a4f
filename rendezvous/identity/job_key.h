// The secret that opens a job: who has it may join, ask and stop; nobody else gets a byte through. It is one
// line of text that a person can carry to another node.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "proto/core/status.h"

namespace dtrun::rendezvous {

class JobKey {
 public:
  static constexpr std::size_t kBytes = 32;

  // From the kernel's random source.
  static JobKey random();

  // As text() writes it, or any other secret that is not too short, or too monotonous. Such a one is
  // stretched by scrypt first, which takes half a second and 128 MiB: a certificate shows whether a guess was
  // right. Space around it is ignored. `source`: where it was found, for who is told that it is none; the
  // text itself is never told.
  static Result<JobKey> parse(std::string_view text, const std::string& source);

  // "dtk1_" and 43 letters, digits, - and _.
  std::string text() const;

  // Tells two keys apart, and nothing else: 8 hexadecimal digits.
  std::string fingerprint() const;

  // Bytes that follow from the key and `purpose` alone (HKDF-SHA256, RFC 5869).
  void derive(std::string_view purpose, unsigned char* bytes, std::size_t size) const;

  // Leave nothing in memory.
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;
  ~JobKey();

  bool operator==(const JobKey&) const = default;

 private:
  JobKey() = default;
  std::array<unsigned char, kBytes> bytes_{};
};

}  // namespace dtrun::rendezvous
