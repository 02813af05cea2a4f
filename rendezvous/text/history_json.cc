#include "rendezvous/text/history_json.h"

namespace dtrun::rendezvous {
namespace {

using Json = nlohmann::ordered_json;

double time_of(Millis at, const ClockPair& clock) {
  return clock.wall_now - static_cast<double>(clock.now - at) / 1000;
}

}  // namespace

Json series_json(const History& history, const ClockPair& clock) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kCurves; ++i)
    for (const Point& point : history.of(static_cast<Curve>(i)).points())
      json[kCurveNames[i]].push_back({point.step, point.value, time_of(point.at, clock)});
  return json;
}

Json events_json(const History& history, const ClockPair& clock) {
  Json json = Json::array();
  for (const Occurrence& event : history.events())
    json.push_back({{"kind", event.kind},
                    {"text", event.text},
                    {"generation", event.generation},
                    {"step", event.step},
                    {"time", time_of(event.at, clock)}});
  return json;
}

}  // namespace dtrun::rendezvous
