// The life of a job on a page: as data that pictures.js draws, and as tables for those without pictures. A
// row for each node, bars of the kinds of goodput for each generation. Each stretch of the life is a picture
// of its own, the newest first. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cmd/history/job_life.h"

namespace dtrun::cmd {

// What drawLife() takes, an element for each stretch; empty if no node was at work.
nlohmann::ordered_json life_data(const JobLife& life);

// HTML with a place for each of these pictures, and its table.
std::string life_part(const JobLife& life);

}  // namespace dtrun::cmd
