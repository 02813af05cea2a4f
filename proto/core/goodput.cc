#include "proto/core/goodput.h"

#include "proto/core/text.h"

namespace dtrun {
namespace {

constexpr double kWorthTelling = 0.05;  // seconds: less is 0.0 s in words

}  // namespace

std::string goodput_text(const Goodput& spent) {
  std::string text = "goodput " + decimals(100 * spent.ratio(), 1) + " %";
  const char* separator = ": ";
  for (const GoodputKind& kind : kGoodputKinds) {
    if (spent.*kind.seconds < kWorthTelling) continue;
    text += separator + time_text(spent.*kind.seconds) + " " + kind.name;
    separator = ", ";
  }
  return text;
}

}  // namespace dtrun
