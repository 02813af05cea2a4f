// The secret that opens a job: a holder of it may join, ask and stop; without it no byte gets through. It is
// one line of text that a person can carry to another node.
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

  // Parses the form that text() writes, or 32 hexadecimal digits and more that are not too monotonous. Space
  // around the text is ignored. `source`: where the text was found; the text itself never gets into a
  // message.
  static Result<JobKey> parse(std::string_view text, const std::string& source);

  // "dtk1_" and 43 letters, digits, - and _.
  std::string text() const;

  // Tells two keys apart, and nothing else: 8 hexadecimal digits.
  std::string fingerprint() const;
  const std::string& source() const { return source_; }  // for people; "": unknown

  // Opens the page of one run and nothing else, that of "" the metrics of all. The same on every host that
  // may be the coordinator.
  std::string page_token(const std::string& run_id) const;

  // Bytes that follow from the key and `purpose` alone (HKDF-SHA256, RFC 5869).
  void derive(std::string_view purpose, unsigned char* bytes, std::size_t size) const;

  // Leave nothing in memory.
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;
  ~JobKey();

  bool operator==(const JobKey& other) const { return bytes_ == other.bytes_; }

 private:
  JobKey() = default;
  std::array<unsigned char, kBytes> bytes_{};
  std::string source_;
};

}  // namespace dtrun::rendezvous
