#include "rendezvous/text/history_json.h"

#include "rendezvous/core/observe/straggler.h"

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

Json windows_json(const History& history, const ClockPair& clock) {
  Json json = Json::array();
  for (const HeatColumn& column : history.columns()) {
    Json ratios = Json::array();
    for (const int ratio : column.ratios)
      ratios.push_back(ratio == kUnknownRatio ? Json(nullptr) : Json(ratio / 1000.0));
    json.push_back({time_of(column.at, clock), column.generation, std::move(ratios)});
  }
  return json;
}

Json life_json(const History& history, const ClockPair& clock) {
  Json json = Json::array();
  for (const LifeSpan& span : history.life().spans())
    json.push_back(
        {span.kind != nullptr ? Json(span.kind->name) : Json(nullptr), time_of(span.begin, clock)});
  return json;
}

Json events_json(const History& history, const ClockPair& clock) {
  Json json = Json::array();
  for (const Occurrence& event : history.events()) {
    json.push_back({{"kind", event.kind},
                    {"text", event.text},
                    {"generation", event.generation},
                    {"step", event.step},
                    {"time", time_of(event.at, clock)}});
    if (event.rank < 0) continue;
    json.back()["rank"] = event.rank;
    json.back()["words"] = event.words;
  }
  return json;
}

}  // namespace dtrun::rendezvous
