#include "rendezvous/text/goodput_json.h"

namespace dtrun::rendezvous {

nlohmann::ordered_json goodput_json(const Goodput& goodput) {
  nlohmann::ordered_json json{{"ratio", goodput.ratio()}};
  for (const GoodputKind& kind : kGoodputKinds) json[kind.name] = goodput.*kind.seconds;
  json["steps_redone"] = goodput.steps_redone;
  return json;
}

Goodput goodput_of(const nlohmann::ordered_json& json) {
  Goodput goodput;
  for (const GoodputKind& kind : kGoodputKinds) goodput.*kind.seconds = json.value(kind.name, 0.0);
  goodput.steps_redone = json.value("steps_redone", std::int64_t{0});
  return goodput;
}

}  // namespace dtrun::rendezvous
