// Identifies this build of dtrun, so that a launcher and the agents on other hosts are surely the same.
#pragma once

#include <filesystem>
#include <string>

namespace dtrun::cmd {

// The linker's id of an ELF program, in hexadecimal; empty if it has none or cannot be read.
std::string build_id(const std::filesystem::path& program);

// The build of dtrun and of the dtrun-worker beside it. Fit for a file name.
std::string own_build();

}  // namespace dtrun::cmd
