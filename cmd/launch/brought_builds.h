// The builds of dtrun that launchers brought to this host (cmd/launch/own_files.h): CACHE/dtrun/BUILD each.
// An agent holds a lock in its build as long as it runs, so that no other one removes it.
#pragma once

#include <chrono>
#include <filesystem>

#include "agent/system/descriptor.h"

namespace dtrun::cmd {

// A build that no agent was started from for so long goes.
inline constexpr std::chrono::hours kKeepBuilds(30 * 24);
// The file in a build that is locked. It comes last, so that a folder without it is no whole build.
inline constexpr const char* kBuildLock = "lock";

// The folder of `program` (CACHE/dtrun/BUILD/bin/dtrun), whose build is `build`, if it was brought; else
// empty.
std::filesystem::path brought_build(const std::filesystem::path& program, const std::string& build);

// The build stays until what is returned is closed here and in all processes that inherited it. Not open
// where it cannot be locked.
agent::Descriptor keep_build(const std::filesystem::path& folder);

// Removes other builds in the cache of `folder`, and what was left of bringing one, that are older than
// kKeepBuilds and that no process keeps. Leaves alone what has another name than a build.
void remove_old_builds(const std::filesystem::path& folder);

}  // namespace dtrun::cmd
