// What hosts and carriers say goes to the user's terminal: none of it may move the cursor, set a title or
// fill the clipboard there, nor look like a line of dtrun's own. What workers write is their own affair, as
// under ssh.
#pragma once

#include <string>
#include <string_view>

#include "proto/launch.pb.h"

namespace dtrun::cmd {

// Makes all texts in it fit for a terminal, but for Output. In what an agent says its colours stay. A time
// that is none goes.
void clean(launch::FromHost* message);

// Each line as printable() has it.
std::string clean_lines(std::string_view text);

// Lines behind the first begin with a space.
std::string with_indent(std::string_view text);

}  // namespace dtrun::cmd
