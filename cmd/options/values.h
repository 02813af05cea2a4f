// Values of options as typed, one function per kind. A failure has EX_USAGE and names the value's source, the
// value and the allowed ones. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/job_spec.h"
#include "cmd/options/given.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// If the option is given: `parse` makes its value, which becomes *field.
template <typename Field, typename Parse>
Status read_given(const std::optional<Given>& given, Field* field, const Parse& parse) {
  if (!given) return {};
  ASSIGN_OR_RETURN(auto value, parse(*given));
  *field = std::move(value);
  return {};
}

Status usage(const std::string& message);
std::string quoted(const Given& given);  // "--nnodes=2"

Result<int> parse_int(const Given& given, int least, const std::string& allowed);
Result<int> parse_count(const Given& given, int most, const std::string& allowed);  // 1 to `most`
Result<std::chrono::milliseconds> parse_seconds(const Given& given);
Result<std::chrono::seconds> parse_age(const Given& given);  // "90s", "30m", "24h", "7d": more than 0
Result<NodeCount> parse_nodes(const Given& given);
Result<int> parse_port(const Given& given);                      // 1 to 65535
Result<std::optional<int>> parse_page_port(const Given& given);  // 0: auto; nothing: off
Result<std::string> parse_numeric_address(const Given& given);   // IPv4 or IPv6
Result<std::uint64_t> parse_size(const Given& given);  // "500K", "100M", "2G" (powers of 1024) or bytes
Result<std::set<int>> parse_ranks(const Given& given);
// A run's name becomes the name of files, part of store keys, and the word behind `dtrun status`.
Status check_run_id(const Given& given);

// HOST, HOST:PORT, [IPV6], [IPV6]:PORT; a bare IPv6 address has two colons or more. Port 0: any free one.
struct Endpoint {
  std::string host;
  int port = 0;
};
// True if `text` may be a host's name or address: nothing that resolves has a space or a slash ("http://…").
bool may_be_host(const std::string& text);

Result<Endpoint> parse_endpoint(const Given& given, int default_port);
std::string endpoint_text(const Endpoint& endpoint);  // the same, with the port

// Several endpoints between commas, each of which may be the coordinator, in the order in which they take
// over: HOST,HOST,HOST[:PORT]. One port is for all.
Result<std::vector<Endpoint>> parse_endpoints(const Given& given, int default_port);
inline constexpr std::size_t kMostEndpoints = 9;

// torchrun's streams, 0 none, 1 stdout, 2 stderr, 3 both: one number for all workers or a number by local
// rank ("0:1,1:2"); ranks that are not named have none.
struct Streams {
  int all = 0;
  std::map<int, int> by_rank;

  int of(int local_rank) const {
    const auto found = by_rank.find(local_rank);
    return found == by_rank.end() ? all : found->second;
  }
};
Result<Streams> parse_streams(const Given& given);

// "2,64-78" as inclusive ranges; empty: none.
Result<std::vector<std::pair<int, int>>> parse_exit_codes(const Given& given);

// "SIGUSR1,TERM"
Result<std::vector<int>> parse_signals(const Given& given);

Result<ColourMode> parse_colour(const Given& given);
Result<ProgressMode> parse_progress(const Given& given);

// --color as given on the command line or else in the environment, read before anything is checked: the
// message about a wrong command line needs to know whether to use colour.
ColourMode colour_at_first_sight(const std::vector<std::string>& arguments, const Environment& environment);

// The values of an option that may be given several times (OptionEntry::repeats).
std::vector<std::string> repeated_values(const Given& given);

// For a shell, with quotes only where they are needed.
std::string shell_word(const std::string& word);

// Between commas; ",," is a comma.
std::vector<std::string> split_words(const std::string& text);

}  // namespace dtrun::cmd
