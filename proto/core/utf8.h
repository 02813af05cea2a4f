// Makes a line of any bytes fit for a protobuf string and a terminal.
#pragma once

#include <string>
#include <string_view>

namespace dtrun {

// The part of a line that a terminal still shows: the text after the last carriage return that is followed by
// something.
std::string_view overwritten(std::string_view line);

// The part after the last carriage return (as a terminal would show it), with '?' for control characters and
// for bytes that are not UTF-8. Newlines and tabs stay.
std::string printable(std::string_view text);
// The same as one line: a space for each newline.
std::string printable_line(std::string_view text);

}  // namespace dtrun
