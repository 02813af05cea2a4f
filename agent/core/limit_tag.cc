#include "agent/core/limit_tag.h"

#include <algorithm>
#include <optional>

#include "proto/core/number.h"

namespace dtrun::agent {
namespace {

// A tagged limit is one of these two bits, 37 bits of the agent's tag, and 24 of the worker's number. A job
// inside another job has the smaller bit, because a limit cannot exceed its hard limit.
constexpr std::uint64_t kOutermost = 1ull << 62, kNested = 1ull << 61;
constexpr int kWorkerBits = 24;
constexpr std::uint64_t kWorkerMask = (1ull << kWorkerBits) - 1;
constexpr std::uint64_t kAgentMask = kNested - 1 - kWorkerMask;

bool is_tag(std::uint64_t limit) { return limit >= kNested && limit < 2 * kOutermost; }

bool agrees(std::optional<std::uint64_t> limit, const LimitTag& limit_tag) {
  return limit && is_tag(*limit) && (*limit & limit_tag.mask) == limit_tag.bits;
}

std::string_view without_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

}  // namespace

LimitTag limit_tag(std::string_view tag) {
  const std::size_t digits = std::min(tag.find_first_not_of("0123456789abcdef"), tag.size());
  if (digits < 16) return {};
  const auto agent = parse_leading_number<std::uint64_t>(tag.substr(0, 16), 16);
  LimitTag limit_tag{(*agent << kWorkerBits) & kAgentMask, kAgentMask};
  if (!tag.substr(digits).starts_with('.')) return limit_tag;
  const auto worker = parse_leading_number<std::uint64_t>(tag.substr(digits + 1));
  return {limit_tag.bits | (worker.value_or(0) & kWorkerMask), kAgentMask | kWorkerMask};
}

Limit tagged_limit(const Limit& agents, const LimitTag& worker) {
  if (!is_tag(agents.soft)) return {kOutermost | worker.bits, agents.hard};
  return {kNested | worker.bits, is_tag(agents.hard) ? agents.hard : agents.soft};
}

// "Max file locks            SOFT                 HARD                 locks"
bool has_tag(std::string_view limits, const LimitTag& limit_tag) {
  static constexpr std::string_view kName = "Max file locks ";
  const std::size_t at = limits.find(kName);
  if (at == std::string_view::npos || limit_tag.mask == 0) return false;
  const std::string_view soft = without_spaces(limits.substr(at + kName.size()));
  const std::string_view hard = without_spaces(soft.substr(std::min(soft.find(' '), soft.size())));
  return agrees(parse_leading_number<std::uint64_t>(soft), limit_tag) ||
         agrees(parse_leading_number<std::uint64_t>(hard), limit_tag);
}

}  // namespace dtrun::agent
