#include "cmd/hosts/hostfile.h"

#include <array>

#include "cmd/hosts/host_words.h"
#include "proto/core/contract.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr std::string_view kSpaces = " \t\r\v\f";

// Open MPI's words (PRRTE's hostfile_lex.l) and Hydra's.
constexpr std::array<std::string_view, 3> kSlotKeys = {"slots", "cpu", "count"};
constexpr std::array<std::string_view, 12> kMostSlotsKeys = {
    "max_slots", "max-slots", "slots_max", "slots-max", "max_cpu",   "max-cpu",
    "cpu_max",   "cpu-max",   "max_count", "max-count", "count_max", "count-max"};
constexpr std::array<std::string_view, 4> kUserKeys = {"user", "username", "user_name", "user-name"};

template <std::size_t kCount>
bool is_one_of(std::string_view key, const std::array<std::string_view, kCount>& keys) {
  for (const auto one : keys) {
    if (key == one) return true;
  }
  return false;
}

Status wrong_line(const std::string& message) { return {kExitConfig, message}; }

// Words between spaces, up to a comment ('#', or a word that begins with "//"); Open MPI also has spaces
// around '='.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  bool joins = false;  // the next word belongs to the one before
  line = line.substr(0, line.find('#'));
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(kSpaces), line.size()));
    if (line.empty() || line.starts_with("//")) return words;
    const auto word = line.substr(0, line.find_first_of(kSpaces));
    line.remove_prefix(word.size());
    if (words.empty() || !(joins || word.starts_with('='))) {
      words.emplace_back(word);
    } else {
      words.back() += word;
    }
    joins = words.size() > 1 && words.back().ends_with('=');
  }
}

// The words behind the host on its line.
struct Details {
  int slots = 0;
  int most_slots = 0;
  std::string user = {};
};

Status read_count(std::string_view key, std::string_view text, int* count) {
  if (*count != 0) return wrong_line("'" + std::string(key) + "' is said twice");
  *count = read_slots(text);
  if (*count > 0) return {};
  return wrong_line("expected " + std::string(key) + " from 1 to " + std::to_string(kMaxWorkersPerNode) +
                    ", not '" + shown(text) + "'");
}

Status read_detail(std::string_view word, Details* details) {
  const auto equals = word.find('=');
  const auto key = word.substr(0, equals);
  const auto value = equals == word.npos ? std::string_view{} : word.substr(equals + 1);
  if (equals != word.npos && is_one_of(key, kSlotKeys)) return read_count(key, value, &details->slots);
  if (equals != word.npos && is_one_of(key, kMostSlotsKeys))
    return read_count(key, value, &details->most_slots);
  if (equals != word.npos && is_one_of(key, kUserKeys)) {
    details->user = value;
    return {};
  }
  if (key == "port") return wrong_line("a host's port belongs in ~/.ssh/config (Host, Port)");
  return wrong_line("expected slots=N, max_slots=N or user=NAME after a host, not '" + shown(word) + "'");
}

// The hosts of one line that is not empty, with their slots and user. Open MPI takes max_slots for the slots
// if these are not given.
Result<std::vector<Host>> parse_line(const std::vector<std::string>& words) {
  auto hosts = parse_host_word(words.front());
  if (!hosts.ok()) return wrong_line(hosts.status().message());
  Details details;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (const auto status = read_detail(words[i], &details); !status.ok()) return status;
  }
  const int slots = details.slots > 0 ? details.slots : details.most_slots;
  for (auto& host : hosts.value()) {
    if (details.slots > 0 && host.slots > 0)
      return wrong_line("slots are said twice: after ':' and after the host");
    if (host.slots == 0) host.slots = slots;
    if (details.user.empty()) continue;
    if (host.destination != host.name())
      return wrong_line("the user is said twice: before '@' and after the host");
    host.destination = details.user + "@" + host.destination;
    if (!is_destination(host.destination)) return wrong_line("'" + shown(details.user) + "' is no user");
  }
  return hosts;
}

}  // namespace

Result<std::vector<Host>> parse_hostfile(std::string_view text, const std::string& path) {
  HostRoll roll;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // Windows editors' mark of UTF-8
  int number = 0;
  for (const std::string& line : split(text)) {
    ++number;
    const auto words = words_of(line);
    if (words.empty()) continue;
    const auto where = path + ":" + std::to_string(number), place = "line " + std::to_string(number);
    const auto hosts = parse_line(words);
    if (!hosts.ok()) return hosts.status().within(where);
    for (const auto& host : hosts.value()) {
      if (const auto status = roll.add(host, place, kExitConfig); !status.ok()) return status.within(where);
    }
  }
  if (roll.empty()) return wrong_line(path + ": no hosts: expected lines like 'node3 slots=8'");
  return std::move(roll).hosts();
}

}  // namespace dtrun::cmd
