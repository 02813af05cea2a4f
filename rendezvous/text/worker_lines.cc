#include "rendezvous/text/worker_lines.h"

#include <algorithm>
#include <vector>

#include "proto/core/text.h"

namespace dtrun::rendezvous {
namespace {

using Usages = std::vector<const v1::WorkerUsage*>;

// "412.0 MiB", "0.3 to 41.7 s": what all of them have in common is said once.
template <typename Value, typename Text>
std::string range(const Usages& usages, Value value, Text text, const std::string& unit = "") {
  const auto [least, most] = std::ranges::minmax(usages, {}, value);
  const std::string from = text(value(least)), to = text(value(most));
  return (from == to ? from : from + " to " + to) + unit;
}

std::string line_of(const v1::MemberStatus& member) {
  Usages usages;
  for (const v1::WorkerStatus& worker : member.workers())
    if (worker.has_usage()) usages.push_back(&worker.usage());
  if (usages.empty()) return "";
  const auto seconds = [](double value) { return decimals(value, 1); };
  const auto bytes = [](std::int64_t value) { return in_gibibytes(static_cast<std::uint64_t>(value)); };
  const auto cpu = [](const v1::WorkerUsage* usage) { return usage->cpu(); };
  const auto wait = [](const v1::WorkerUsage* usage) { return usage->cpu_wait(); };
  const auto memory = [](const v1::WorkerUsage* usage) { return usage->resident_bytes(); };
  const auto silent = [](const v1::WorkerUsage* usage) { return usage->output_age(); };
  return "  " + member.host() + ": CPU " + range(usages, cpu, seconds, " s") + ", waited for one " +
         range(usages, wait, seconds, " s") + ", memory " + range(usages, memory, bytes) + ", last output " +
         range(usages, silent, seconds, " s ago") + "\n";
}

}  // namespace

std::string worker_lines(const v1::RunStatus& run) {
  std::string text;
  for (const v1::MemberStatus& member : run.members()) text += line_of(member);
  return text;
}

}  // namespace dtrun::rendezvous
