// Prometheus' text format, version 0.0.4: families of samples with their help and type. Pure.
// https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::rendezvous {

inline constexpr char kExpositionType[] = "text/plain; version=0.0.4; charset=utf-8";

enum class MetricType { kCounter, kGauge, kHistogram };

// Labels as they are written, without their braces: `run_id="mnist",rank="3"`.
using LabelText = std::string;
// Values may have any bytes.
LabelText label_text(std::initializer_list<std::pair<std::string_view, std::string_view>> labels);

// Gathers samples in any order; the text has those of a family together, families in the order of their first
// sample.
class Exposition {
 public:
  // `help`: a sentence. The same `name` has the same type and help at each call. `part`: of a histogram's
  // name, "_bucket", "_sum" or "_count".
  void add(std::string_view name, MetricType type, std::string_view help, const LabelText& labels,
           double value, std::string_view part = "");

  std::string text() const;

 private:
  std::map<std::string, std::size_t, std::less<>> places_;
  std::vector<std::string> families_;
};

}  // namespace dtrun::rendezvous
