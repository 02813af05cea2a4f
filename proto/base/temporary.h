// The folder for temporary files: heartbeat files, error files, logs without a log directory. The code that
// makes one removes it.
#pragma once

#include <filesystem>

namespace dtrun {

// The first of $TMPDIR, /tmp and /var/tmp that is a directory in which this process may make files; /tmp if
// none is, so that a file that cannot be made there fails with a name that people know.
std::filesystem::path temporary_folder();

}  // namespace dtrun
