#include "rendezvous/http/access.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>

namespace dtrun::rendezvous {
namespace {

// The kernel prints an address as numbers of 32 bits, each in the machine's order of bytes.
std::string table_form(const SocketAddress& address) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text;
  const auto add = [&text](unsigned char byte) { text += {kDigits[byte >> 4], kDigits[byte & 15]}; };
  for (std::size_t word = 0; word + 4 <= address.bytes.size(); word += 4)
    for (std::size_t i = 0; i < 4; ++i)
      add(address.bytes[word + (std::endian::native == std::endian::little ? 3 - i : i)]);
  text += ':';
  add(static_cast<unsigned char>(address.port >> 8));
  add(static_cast<unsigned char>(address.port & 255));
  return text;
}

// IPv4 within IPv6, as a client with a socket of the latter has it.
SocketAddress mapped(const SocketAddress& address) {
  if (address.bytes.size() != 4) return address;
  SocketAddress six{.bytes = std::vector<unsigned char>(16), .port = address.port};
  six.bytes[10] = six.bytes[11] = 255;
  std::ranges::copy(address.bytes, six.bytes.begin() + 12);
  return six;
}

std::string_view next_word(std::string_view* line) {
  const std::size_t begin = std::min(line->find_first_not_of(' '), line->size());
  const std::size_t end = std::min(line->find(' ', begin), line->size());
  const std::string_view word = line->substr(begin, end - begin);
  line->remove_prefix(end);
  return word;
}

// "sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid …"
std::optional<std::uint32_t> owner_in(std::string_view line, const std::string& local,
                                      const std::string& remote) {
  next_word(&line);
  if (next_word(&line) != local || next_word(&line) != remote) return std::nullopt;
  for (int i = 0; i < 4; ++i) next_word(&line);
  const std::string_view word = next_word(&line);
  std::uint32_t owner = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), owner);
  return read.ec == std::errc() && read.ptr == word.data() + word.size() ? std::optional(owner)
                                                                         : std::nullopt;
}

}  // namespace

bool is_loopback(const SocketAddress& address) {
  const std::vector<unsigned char>& bytes = address.bytes;
  if (bytes.size() == 4) return bytes[0] == 127;
  if (bytes.size() != 16) return false;
  const auto zeros = [&](std::size_t count) {
    return std::all_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count),
                       [](unsigned char byte) { return byte == 0; });
  };
  return (zeros(15) && bytes[15] == 1) ||
         (zeros(10) && bytes[10] == 255 && bytes[11] == 255 && bytes[12] == 127);
}

std::optional<std::uint32_t> owner_of(std::string_view table, const SocketAddress& peer,
                                      const SocketAddress& own) {
  const std::string forms[][2] = {{table_form(peer), table_form(own)},
                                  {table_form(mapped(peer)), table_form(mapped(own))}};
  while (!table.empty()) {
    const std::size_t end = std::min(table.find('\n'), table.size());
    for (const auto& form : forms)
      if (const auto owner = owner_in(table.substr(0, end), form[0], form[1])) return owner;
    table.remove_prefix(std::min(end + 1, table.size()));
  }
  return std::nullopt;
}

bool is_own_name(std::string_view host) {
  const bool bracketed = host.starts_with('[');
  const std::size_t end = bracketed ? host.find(']') : host.find(':');
  if (bracketed && end == host.npos) return false;
  const std::string_view rest = end == host.npos ? "" : host.substr(end + (bracketed ? 1 : 0));
  const bool port = rest.empty() || (rest.size() > 1 && rest.size() <= 6 && rest[0] == ':' &&
                                     rest.find_first_not_of("0123456789", 1) == rest.npos);
  if (!port) return false;
  std::string name(bracketed ? host.substr(1, end - 1) : host.substr(0, end));
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name == "localhost" || name == "127.0.0.1" || name == "::1";
}

bool same_secret(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    difference = static_cast<unsigned char>(difference | (one[i] ^ other[i]));
  return difference == 0;
}

}  // namespace dtrun::rendezvous
