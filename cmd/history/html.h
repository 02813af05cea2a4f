// Parts of an HTML page. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::cmd {

// JSON that can stand in a script element: no "<" is in it.
std::string for_script(const std::string& json);

// Cells are markup.
std::string table_of(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows);

}  // namespace dtrun::cmd
