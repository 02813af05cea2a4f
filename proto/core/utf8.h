// Makes a line of any bytes fit for a protobuf string and a terminal.
#pragma once

#include <string>
#include <string_view>

namespace dtrun {

// What a terminal still shows of a line that was overwritten: the part after the last carriage return that
// something follows.
std::string_view overwritten(std::string_view line);

// The part after the last carriage return (what a terminal would show), with '?' for control characters and
// for bytes that are not UTF-8. Newlines and tabs stay.
std::string printable(std::string_view text);
// The same as one line: a space for each newline.
std::string printable_line(std::string_view text);

}  // namespace dtrun
