#include "cmd/job_files/pod_values.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "cmd/options/values.h"

namespace dtrun::cmd {
namespace {

constexpr double kLeastCpus = 0.001;
constexpr double kLeastMemory = 1 << 20;  // bytes

bool are_digits(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// The factor of a unit of memory; nothing if the text is none.
std::optional<double> factor_of(const std::string& unit) {
  static constexpr char kPrefixes[] = "kMGTPE";
  if (unit.empty()) return 1;
  if (unit.size() > 1 && (unit[0] == 'e' || unit[0] == 'E') && are_digits(unit.substr(1)))
    return std::pow(10, std::atoi(unit.c_str() + 1));
  const bool binary = unit.size() == 2 && unit[1] == 'i';
  const std::string prefixes = binary ? "KMGTPE" : kPrefixes;
  const std::size_t at = prefixes.find(unit[0]);
  if (at == std::string::npos || (unit.size() > 1 && !binary)) return std::nullopt;
  return std::pow(binary ? 1024 : 1000, static_cast<double>(at + 1));
}

// "1.5Gi" as 1.5 and "Gi"; nothing if it begins with no number.
std::optional<std::pair<double, std::string>> split_quantity(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string number = text.substr(0, end);
  const bool has_digit = number.find_first_not_of('.') != std::string::npos;
  if (!has_digit || std::ranges::count(number, '.') > 1) return std::nullopt;
  return std::pair(std::strtod(number.c_str(), nullptr), text.substr(end));
}

}  // namespace

Status check_image(const Given& given) {
  const std::string& image = given.value;
  const std::string name = image.substr(image.rfind('/') + 1);
  const std::size_t digest = name.find('@'), colon = name.find(':');
  const std::string tag = colon == std::string::npos ? "" : name.substr(colon + 1);
  const bool is_word = std::ranges::all_of(image, [](char c) { return c > ' ' && c < 127; });
  if (is_word && (digest != std::string::npos || (!tag.empty() && tag != "latest"))) return {};
  return usage(quoted(given) +
               ": expected a tag other than latest, or a digest: REGISTRY/NAME:TAG; else a pod "
               "that is replaced may get another build than the others have");
}

Status check_cpus(const Given& given) {
  const auto quantity = split_quantity(given.value);
  const bool milli = quantity && quantity->second == "m";
  if (quantity && (milli || quantity->second.empty()) && quantity->first * (milli ? 0.001 : 1) >= kLeastCpus)
    return {};
  return usage(quoted(given) + ": expected a number of CPUs, such as 8, 0.5 or 500m");
}

Status check_memory(const Given& given) {
  const auto quantity = split_quantity(given.value);
  const std::optional<double> factor = quantity ? factor_of(quantity->second) : std::nullopt;
  if (factor && quantity->first * *factor >= kLeastMemory) return {};
  return usage(quoted(given) +
               ": expected an amount of memory as Kubernetes writes it, such as 16Gi or 16G, and "
               "at least 1Mi");
}

}  // namespace dtrun::cmd
