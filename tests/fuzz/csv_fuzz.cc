// Any bytes as a CSV file, in pieces of any size: a status, or a table of as many values as its rows have,
// all finite, with labels in range; and the same whatever the pieces are.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "worker/data/csv.h"

using namespace dtrun::worker;

namespace {

constexpr int kClasses = 10;

dtrun::Result<CsvTable> parse(std::span<const std::uint8_t> rest, std::size_t piece) {
  const auto next = [&]() -> dtrun::Result<std::span<const std::uint8_t>> {
    const auto first = rest.first(std::min(piece, rest.size()));
    rest = rest.subspan(first.size());
    return first;
  };
  return parse_csv(next, {.label_column = "1", .classes = kClasses});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto table = parse({data, size}, SIZE_MAX), again = parse({data, size}, size % 7 + 1);
  if (table.ok() != again.ok()) std::abort();
  if (!table.ok()) {
    if (table.status().message().empty() || table.status().message() != again.status().message())
      std::abort();
    return 0;
  }
  const auto& [features, label, header, index, values, labels] = table.value();
  if (labels.empty() || features == 0 || values.size() != labels.size() * features) std::abort();
  if (label == 0 || label > features + 1 || (index && !header)) std::abort();
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) std::abort();
  if (!std::ranges::all_of(labels, [](std::int32_t label) { return label >= 0 && label < kClasses; }))
    std::abort();
  if (values != again.value().values || labels != again.value().labels) std::abort();
  return 0;
}
