#include "rendezvous/text/exposition.h"

#include <array>
#include <charconv>
#include <cmath>

#include "proto/core/utf8.h"

namespace dtrun::rendezvous {
namespace {

void append_value(double value, std::string* text) {
  if (std::isnan(value)) {
    *text += "NaN";
  } else if (std::isinf(value)) {
    *text += value > 0 ? "+Inf" : "-Inf";
  } else {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    text->append(digits.data(), end);
  }
}

// REQUIRES: `value` has no newline.
void append_escaped(std::string_view value, std::string* text) {
  for (const char c : value) {
    if (c == '\\' || c == '"') *text += '\\';
    *text += c;
  }
}

}  // namespace

LabelText label_text(std::initializer_list<std::pair<std::string_view, std::string_view>> labels) {
  LabelText text;
  for (const auto& [name, value] : labels) {
    if (!text.empty()) text += ',';
    text.append(name) += "=\"";
    append_escaped(printable_line(value), &text);
    text += '"';
  }
  return text;
}

void Exposition::add(std::string_view name, MetricType type, std::string_view help, const LabelText& labels,
                     double value, std::string_view part) {
  static constexpr std::string_view kTypes[] = {"counter", "gauge", "histogram"};
  auto place = places_.find(name);
  if (place == places_.end()) {
    place = places_.emplace(name, families_.size()).first;
    std::string head = "# HELP ";
    head.append(name).append(" ").append(help) += "\n# TYPE ";
    head.append(name).append(" ").append(kTypes[static_cast<std::size_t>(type)]) += '\n';
    families_.push_back(std::move(head));
  }
  std::string& family = families_[place->second];
  family.append(name).append(part);
  if (!labels.empty()) family.append("{").append(labels).append("}");
  family += ' ';
  append_value(value, &family);
  family += '\n';
}

std::string Exposition::text() const {
  std::string all;
  for (const std::string& family : families_) all += family;
  return all;
}

}  // namespace dtrun::rendezvous
