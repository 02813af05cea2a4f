// A run's status as text for people and as JSON for scripts. Pure but for the messages' types.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "proto/core/colour.h"
#include "proto/rendezvous.pb.h"

namespace dtrun::rendezvous {

// A few lines, each with its newline.
std::string status_text(const v1::RunStatus& run, const std::string& endpoint,
                        const Palette& palette = Palette());

// "http://127.0.0.1:40123/?run=job7&token=…", a secret.
std::string page_link(const v1::Page& page, const std::string& run_id);

nlohmann::ordered_json status_json(const v1::RunStatus& run, const std::string& endpoint);

// With a final newline: to be read by people too, or an object a line.
std::string json_document(const nlohmann::ordered_json& json);
std::string json_line(const nlohmann::ordered_json& json);

}  // namespace dtrun::rendezvous
