// Bytes as a word that fits into a variable, a file's line and a web address (RFC 4648, section 5, without
// padding).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::rendezvous {

std::string to_base64url(const unsigned char* bytes, std::size_t size);

// Nothing if the text is not in this form, or its last bits are not zero: then two texts would mean the same
// bytes.
std::optional<std::string> from_base64url(std::string_view text);

}  // namespace dtrun::rendezvous
