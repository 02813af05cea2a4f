#include "rendezvous/text/verdict_json.h"

namespace dtrun::rendezvous {

nlohmann::ordered_json verdict_json(const Verdict& verdict) {
  return {
      {"text", verdict.text},
      {"rank", verdict.rank >= 0 ? nlohmann::ordered_json(verdict.rank) : nlohmann::ordered_json(nullptr)},
      {"cause", verdict.cause},
      {"loss", verdict.loss}};
}

Verdict verdict_of(const nlohmann::ordered_json& json) {
  return {.text = json.at("text"),
          .rank = json.at("rank").is_null() ? -1 : json.at("rank").get<int>(),
          .cause = json.at("cause"),
          .loss = json.at("loss")};
}

}  // namespace dtrun::rendezvous
