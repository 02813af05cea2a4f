// dtrun brings itself to a host that has none, or another build: its programs and libraries travel as one tar
// archive, and a line of shell unpacks them into a cache there.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "proto/core/status.h"

namespace dtrun::cmd {

// Printed by the line of shell when it wants the archive.
inline constexpr const char* kWantsFiles = "dtrun wants its files\n";

// `program`, the dtrun-worker beside it, and their libraries except those that every distribution has, as a
// tar archive (ustar) with bin/ and lib/, where the programs look first, and last kBuildLock.
Result<std::shared_ptr<const std::string>> archive_of(const std::filesystem::path& program);

// A script for sh, one line without single quotes or `!`, so that in single quotes it is a word to any shell:
// runs `dtrun agent` of this build from the cache there ($XDG_CACHE_HOME/dtrun/BUILD), to which it adds the
// archive of `size` bytes if it is not there yet. A build in the cache is whole: it appears under its name in
// one step. Ends with 73 if there is no place for the files. The folder's name may have any characters: each
// use of it stands in double quotes.
std::string bringing_script(const std::string& build, std::size_t size);

}  // namespace dtrun::cmd
