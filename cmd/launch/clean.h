// Makes output of hosts and remote shells fit for the user's terminal: none of it may move the cursor, set a
// title or fill the clipboard there, nor look like a line of dtrun's own. The output of workers is passed on
// unchanged, as under ssh.
#pragma once

#include <string>
#include <string_view>

#include "proto/launch.pb.h"

namespace dtrun::cmd {

// Makes all texts in it fit for a terminal, except Output. An agent's own lines keep their colours. An
// invalid time is removed.
void clean(launch::FromHost* message);

// printable() of each line.
std::string clean_lines(std::string_view text);

// Lines behind the first begin with a space.
std::string with_indent(std::string_view text);

}  // namespace dtrun::cmd
