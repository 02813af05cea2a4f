// Small parts first (lists, numbers, host and port), then a function for each kind of value, in the order of
// the header.
#include "cmd/options/values.h"

#include <arpa/inet.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "proto/core/contract.h"
#include "proto/core/exit_codes.h"
#include "proto/core/nearest.h"
#include "proto/core/number.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

using std::chrono::milliseconds;

// The whole of `text` as a number in 0 … `most`.
bool read_number(const std::string& text, int most, int* number) {
  const auto read = parse_number<int>(text);
  if (read) *number = *read;
  return read && *read >= 0 && *read <= most;
}

struct HostAndPort {
  std::string host, port;
  bool has_port = false;
};

HostAndPort split_endpoint(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || text.find(':', colon + 1) != std::string::npos) return {text, "", false};
  return {text.substr(0, colon), text.substr(colon + 1), true};
}

// Faults and signals that a process cannot block end it before they can be handled.
constexpr int kNotHandled[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE, SIGSEGV, SIGBUS,
                               SIGFPE,  SIGILL,  SIGABRT, SIGTRAP, SIGSYS,  SIGPROF};

std::vector<std::string> signal_names() {
  std::vector<std::string> names;
  for (int number = 1; number < NSIG; ++number) {
    if (const char* name = sigabbrev_np(number)) names.push_back("SIG" + std::string(name));
  }
  return names;
}

int signal_number(const std::string& name) {
  for (int number = 1; number < NSIG; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && (name == known || name == "SIG" + std::string(known))) return number;
  }
  return 0;
}

// The place of a word in a list; `allowed` is that list as text.
template <std::size_t N>
Result<int> parse_word(const Given& given, const char* const (&words)[N]) {
  std::string allowed;
  for (std::size_t i = 0; i < N; ++i) {
    if (given.value == words[i]) return static_cast<int>(i);
    allowed += (i == 0 ? "" : i + 1 == N ? " or " : ", ") + std::string(words[i]);
  }
  return usage(quoted(given) + ": expected " + allowed);
}

}  // namespace

Status usage(const std::string& message) { return Status(kExitUsage, message); }

std::string quoted(const Given& given) { return given.source + "=" + given.value; }

Result<int> parse_int(const Given& given, int least, const std::string& allowed) {
  int value = 0;
  if (read_number(given.value, std::numeric_limits<int>::max(), &value) && value >= least) return value;
  return usage(quoted(given) + ": expected " + allowed);
}

Result<int> parse_count(const Given& given, int most, const std::string& allowed) {
  int value = 0;
  if (read_number(given.value, most, &value) && value >= 1) return value;
  return usage(quoted(given) + ": expected " + allowed);
}

Result<milliseconds> parse_seconds(const Given& given) {
  std::istringstream text(given.value);
  double seconds = 0;
  if (!(text >> seconds) || !text.eof() || !std::isfinite(seconds) || seconds < 0 || seconds > 1e7) {
    return usage(quoted(given) + ": expected a number of seconds, 0 or more");
  }
  return milliseconds(std::llround(seconds * 1000));
}

Result<NodeCount> parse_nodes(const Given& given) {
  const std::size_t colon = given.value.find(':');
  const std::string allowed = "N or MIN:MAX, with 1 <= MIN <= MAX <= " + std::to_string(kMaxNodes);
  Result<int> least = parse_count({given.value.substr(0, colon), given.source}, kMaxNodes, allowed);
  Result<int> most = least;
  if (colon != std::string::npos)
    most = parse_count({given.value.substr(colon + 1), given.source}, kMaxNodes, allowed);
  if (least.ok() && most.ok() && least.value() <= most.value()) return NodeCount{least.value(), most.value()};
  return usage(quoted(given) + ": expected " + allowed);
}

Result<std::optional<int>> parse_page_port(const Given& given) {
  if (given.value == "auto") return std::optional<int>(0);
  if (given.value == "off") return std::optional<int>();
  const Result<int> port = parse_port(given);
  if (!port.ok()) return usage(quoted(given) + ": expected a port from 1 to 65535, auto or off");
  return std::optional<int>(port.value());
}

Result<std::string> parse_numeric_address(const Given& given) {
  in6_addr bytes{};
  for (const int family : {AF_INET, AF_INET6})
    if (inet_pton(family, given.value.c_str(), &bytes) == 1) return given.value;
  return usage(quoted(given) + ": expected an address of this host in numbers, as 10.0.0.1");
}

Result<int> parse_port(const Given& given) {
  int port = 0;
  if (read_number(given.value, 65535, &port) && port > 0) return port;
  return usage(quoted(given) + ": expected a port from 1 to 65535");
}

Result<std::uint64_t> parse_size(const Given& given) {
  std::uint64_t number = 0;
  const char* end = given.value.data() + given.value.size();
  const auto [stop, error] = std::from_chars(given.value.data(), end, number);
  int shift = stop == end ? 0 : -1;
  if (stop + 1 == end) {
    const std::string units = "KMGT";
    const std::size_t unit = units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*stop))));
    if (unit != std::string::npos) shift = 10 * (static_cast<int>(unit) + 1);
  }
  if (error != std::errc() || shift < 0 || number == 0 || number > (std::uint64_t{1} << 62) >> shift) {
    return usage(quoted(given) + ": expected a size, e.g. 500K, 100M or 2G");
  }
  return number << shift;
}

Result<std::chrono::seconds> parse_age(const Given& given) {
  constexpr std::int64_t kMost = std::int64_t{100} * 365 * 86400;
  static const std::map<char, std::int64_t> kUnits{{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  int number = 0;
  const bool split = given.value.size() > 1 && read_number(given.value.substr(0, given.value.size() - 1),
                                                           std::numeric_limits<int>::max(), &number);
  const auto unit = split ? kUnits.find(given.value.back()) : kUnits.end();
  if (unit == kUnits.end() || number == 0 || number > kMost / unit->second)
    return usage(quoted(given) + ": expected a time up to 100 years, e.g. 30m, 24h or 7d");
  return std::chrono::seconds(number * unit->second);
}

Status check_run_id(const Given& given) {
  constexpr std::size_t kLongest = 128;
  const std::string& id = given.value;
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  const bool fine =
      !id.empty() && id.size() <= kLongest && id[0] != '.' && id[0] != '-' && std::ranges::all_of(id, fits);
  return fine ? Status()
              : usage(quoted(given) + ": expected letters, digits, '.', '_' and '-', at most " +
                      std::to_string(kLongest) + ", no '.' or '-' first");
}

Result<std::set<int>> parse_ranks(const Given& given) {
  std::set<int> ranks;
  for (const std::string& part : split(given.value, ',')) {
    int rank = 0;
    if (!read_number(std::string(trimmed(part, " ")), std::numeric_limits<int>::max(), &rank)) {
      return usage(quoted(given) + ": expected local ranks between commas, e.g. 0,1,2");
    }
    ranks.insert(rank);
  }
  return ranks;
}

bool is_ipv6(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

bool may_be_host(const std::string& text) {
  const auto impossible = [](unsigned char c) {
    return c <= ' ' || c == 0x7f || c == '/' || c == '@' || c == ',';
  };
  return !text.empty() && std::none_of(text.begin(), text.end(), impossible);
}

Result<Endpoint> parse_endpoint(const Given& given, int default_port) {
  const std::string& text = given.value;
  HostAndPort parts;
  if (!text.empty() && text[0] == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string::npos) return usage(quoted(given) + ": the bracket is not closed");
    parts = {text.substr(1, close - 1), "", close + 1 < text.size()};
    if (parts.has_port && text[close + 1] != ':') return usage(quoted(given) + ": expected [ADDRESS]:PORT");
    if (parts.has_port) parts.port = text.substr(close + 2);
  } else {
    parts = split_endpoint(text);
    if (parts.host.find(':') != std::string::npos && !is_ipv6(parts.host))
      return usage(quoted(given) +
                   ": expected HOST[:PORT]; an IPv6 address with a port is written [ADDRESS]:PORT");
  }
  if (!may_be_host(parts.host)) return usage(quoted(given) + ": expected HOST[:PORT]");
  Endpoint endpoint{parts.host, default_port};
  if (!parts.has_port) return endpoint;
  if (parts.port.empty()) return usage(quoted(given) + ": the port is missing after ':'");
  if (!read_number(parts.port, 65535, &endpoint.port)) {
    return usage(quoted(given) + ": expected a port from 1 to 65535");
  }
  return endpoint;
}

Result<std::vector<Endpoint>> parse_endpoints(const Given& given, int default_port) {
  std::vector<Endpoint> endpoints;
  constexpr int kNone = -1;
  int port = kNone;
  for (const std::string& part : split(given.value + ",", ',')) {
    ASSIGN_OR_RETURN(Endpoint one, parse_endpoint({part, given.source}, kNone));
    const int of_this = one.port;
    if (of_this != kNone && port != kNone && of_this != port)
      return usage(quoted(given) + ": expected one port for all hosts, HOST,HOST,HOST:PORT");
    if (of_this != kNone) port = of_this;
    if (std::ranges::find(endpoints, one.host, &Endpoint::host) != endpoints.end())
      return usage(quoted(given) + ": " + one.host + " is named twice");
    endpoints.push_back(one);
  }
  if (endpoints.size() > kMostEndpoints)
    return usage(quoted(given) + ": expected at most " + std::to_string(kMostEndpoints) +
                 " hosts; three outlive the loss of any one of them, five of any two");
  for (Endpoint& endpoint : endpoints) endpoint.port = port == kNone ? default_port : port;
  return endpoints;
}

std::string endpoint_text(const Endpoint& endpoint) {
  const bool ipv6 = endpoint.host.find(':') != std::string::npos;
  return (ipv6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

Result<Streams> parse_streams(const Given& given) {
  const Status wrong = usage(quoted(given) +
                             ": expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or such a number for "
                             "local ranks, e.g. 0:3,1:2");
  Streams streams;
  if (given.value.find(':') == std::string::npos) {
    if (!read_number(given.value, 3, &streams.all)) return wrong;
    return streams;
  }
  for (const std::string& part : split(given.value, ',')) {
    const std::size_t colon = part.find(':');
    int rank = 0, which = 0;
    if (colon == std::string::npos ||
        !read_number(part.substr(0, colon), std::numeric_limits<int>::max(), &rank) ||
        !read_number(part.substr(colon + 1), 3, &which)) {
      return wrong;
    }
    streams.by_rank[rank] = which;
  }
  return streams;
}

Result<std::vector<int>> parse_signals(const Given& given) {
  std::vector<int> numbers;
  for (const std::string& part : split(given.value, ',')) {
    const std::string name = std::string(trimmed(part, " "));
    const int number = signal_number(name);
    if (number == 0) {
      const std::string nearest = nearest_name(name, signal_names());
      return usage(quoted(given) + ": unknown signal " + name +
                   (nearest.empty() ? "" : ", did you mean " + nearest + "?"));
    }
    if (std::find(std::begin(kNotHandled), std::end(kNotHandled), number) != std::end(kNotHandled)) {
      return usage(quoted(given) + ": " + name + " cannot be handled");
    }
    numbers.push_back(number);
  }
  return numbers;
}

Result<ColourMode> parse_colour(const Given& given) {
  ASSIGN_OR_RETURN(const int mode, parse_word(given, kColourModes));
  return static_cast<ColourMode>(mode);
}

Result<ProgressMode> parse_progress(const Given& given) {
  ASSIGN_OR_RETURN(const int mode, parse_word(given, kProgressModes));
  return static_cast<ProgressMode>(mode);
}

ColourMode colour_at_first_sight(const std::vector<std::string>& arguments, const Environment& environment) {
  Given found;
  for (const char* variable : {"PET_COLOR", "DTRUN_COLOR"}) {
    const char* value = environment(variable);
    if (value != nullptr && *value != '\0') found.value = value;
  }
  for (std::size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (arguments[i].starts_with("--color=")) found.value = arguments[i].substr(8);
    if (arguments[i] == "--color" && i + 1 < arguments.size()) found.value = arguments[i + 1];
  }
  const Result<ColourMode> mode = parse_colour(found);
  return mode.ok() ? mode.value() : ColourMode::kAuto;
}

std::vector<std::string> repeated_values(const Given& given) { return split(given.value, '\0'); }

std::string shell_word(const std::string& word) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      words.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      words.back() += ',';
      ++i;
    } else {
      words.emplace_back();
    }
  }
  std::erase(words, "");
  return words;
}

Result<std::vector<std::pair<int, int>>> parse_exit_codes(const Given& given) {
  const std::string allowed = "exit codes from 1 to 255 and ranges of them, as in 2,64-78";
  std::vector<std::pair<int, int>> ranges;
  for (const std::string& part : split(given.value, ',')) {
    const std::size_t dash = part.find('-');
    Result<int> first = parse_int({part.substr(0, dash), given.source}, 1, allowed);
    Result<int> last = first;
    if (dash != std::string::npos) last = parse_int({part.substr(dash + 1), given.source}, 1, allowed);
    if (!first.ok() || !last.ok() || last.value() > 255 || first.value() > last.value())
      return usage(quoted(given) + ": expected " + allowed);
    ranges.emplace_back(first.value(), last.value());
  }
  return ranges;
}

}  // namespace dtrun::cmd
