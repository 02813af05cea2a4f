#include "agent/core/limit_mark.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace dtrun::agent {
namespace {

// A marked limit is one of these two bits, 45 bits of the agent's token, and 16 of the local rank. A job
// inside another job has the smaller bit, because a limit cannot exceed its hard limit.
constexpr std::uint64_t kOutermost = 1ull << 62, kNested = 1ull << 61;
constexpr std::uint64_t kRankMask = (1ull << 16) - 1;
constexpr std::uint64_t kAgentMask = kNested - 1 - kRankMask;

bool is_mark(std::uint64_t limit) { return limit >= kNested && limit < 2 * kOutermost; }

bool agrees(std::optional<std::uint64_t> limit, const LimitMark& mark) {
  return limit && is_mark(*limit) && (*limit & mark.mask) == mark.bits;
}

template <int base>
std::optional<std::uint64_t> number_at(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::string_view without_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

}  // namespace

LimitMark limit_mark(std::string_view token) {
  const std::size_t digits = std::min(token.find_first_not_of("0123456789abcdef"), token.size());
  if (digits < 16) return {};
  const auto agent = number_at<16>(token.substr(0, 16));
  LimitMark mark{(*agent << 16) & kAgentMask, kAgentMask};
  if (!token.substr(digits).starts_with('.')) return mark;
  const auto rank = number_at<10>(token.substr(digits + 1));
  return {mark.bits | (rank.value_or(0) & kRankMask), kAgentMask | kRankMask};
}

Limit marked_limit(const Limit& agents, const LimitMark& worker) {
  if (!is_mark(agents.soft)) return {kOutermost | worker.bits, agents.hard};
  return {kNested | worker.bits, is_mark(agents.hard) ? agents.hard : agents.soft};
}

// "Max file locks            SOFT                 HARD                 locks"
bool has_mark(std::string_view limits, const LimitMark& mark) {
  static constexpr std::string_view kName = "Max file locks ";
  const std::size_t at = limits.find(kName);
  if (at == std::string_view::npos || mark.mask == 0) return false;
  const std::string_view soft = without_spaces(limits.substr(at + kName.size()));
  const std::string_view hard = without_spaces(soft.substr(std::min(soft.find(' '), soft.size())));
  return agrees(number_at<10>(soft), mark) || agrees(number_at<10>(hard), mark);
}

}  // namespace dtrun::agent
