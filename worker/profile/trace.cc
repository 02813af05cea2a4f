#include "worker/profile/trace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/json/json.h"

namespace dtrun::worker {
namespace {

// `time` in seconds as microseconds, rounded to nanoseconds, the resolution of the clocks.
double microseconds(double time) { return std::round(time * 1e9) / 1e3; }

// Names process 0, or one of its tracks.
Json name_of(const char* what, int track, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", 0}, {"tid", track}, {"args", {{"name", name}}}};
}

// The first parameter's name, by which people know the node.
std::string parameter_of(const Program& program, int node) {
  if (node < 0) return "";
  const std::vector<std::size_t> parameters = parameters_of(program.nodes[static_cast<std::size_t>(node)].op);
  return parameters.empty() ? "" : program.parameters[parameters.front()].name;
}

Json span_of(const std::string& name, const std::string& category, int track, double begin, double end) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", microseconds(begin)},
          {"dur", microseconds(std::max(0.0, end - begin))},
          {"pid", 0},
          {"tid", track}};
}

}  // namespace

std::string chrome_trace(const Program& program, const OpTimes& times, std::span<const std::size_t> steps) {
  Json events = Json::array();
  events.push_back(name_of("thread_name", 0, "steps"));
  for (std::size_t stream = 0; stream < times.streams.size(); ++stream)
    events.push_back(name_of("thread_name", static_cast<int>(stream) + 1, times.streams[stream]));

  std::vector<Json> spans;
  std::size_t first = 0;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const auto of_step = std::span(times.times).subspan(first, steps[step] - first);
    first = steps[step];
    if (of_step.empty()) continue;
    spans.push_back(span_of("step " + std::to_string(step + 1), "step", 0,
                            std::ranges::min_element(of_step, {}, &OpTime::begin)->begin,
                            std::ranges::max_element(of_step, {}, &OpTime::end)->end));
    for (const OpTime& time : of_step) {
      const TimedOp& op = times.ops[static_cast<std::size_t>(time.op)];
      const std::string name = op.kind.part.empty() ? op.kind.what : op.kind.what + ", " + op.kind.part;
      spans.push_back(span_of(name, op.kind.part, time.stream + 1, time.begin, time.end));
      spans.back()["args"] = {{"node", op.node},
                              {"parameter", parameter_of(program, op.node)},
                              {"flops", op.cost.flops},
                              {"bytes", op.cost.bytes()}};
    }
  }
  std::ranges::stable_sort(spans, {}, [](const Json& span) { return span["ts"].get<double>(); });
  for (Json& span : spans) events.push_back(std::move(span));
  return json_text({{"traceEvents", events}, {"displayTimeUnit", "ms"}}) + "\n";
}

}  // namespace dtrun::worker
