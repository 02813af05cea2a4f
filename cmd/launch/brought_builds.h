// The builds of dtrun that launchers brought to this host (cmd/launch/own_files.h): CACHE/dtrun/BUILD each.
// An agent holds a lock in its build while it runs, so that no other agent removes it.
#pragma once

#include <chrono>
#include <filesystem>

#include "proto/base/descriptor.h"

namespace dtrun::cmd {

// A build is removed if no agent was started from it for this long.
inline constexpr std::chrono::hours kKeepBuilds(30 * 24);
// The file in a build that is locked. It comes last, so that a folder without it is no whole build.
inline constexpr const char* kBuildLock = "lock";

// The folder of `program` (CACHE/dtrun/BUILD/bin/dtrun), whose build is `build`, if it was brought; else
// empty.
std::filesystem::path brought_build(const std::filesystem::path& program, const std::string& build);

// Keeps the build until the returned descriptor is closed here and in all processes that inherited it. Not
// open if the build cannot be locked.
Descriptor keep_build(const std::filesystem::path& folder);

// Removes other builds in the cache of `folder`, and the rest of one that was only partly brought, that are
// older than kKeepBuilds and that no process keeps. Leaves files and folders alone that are not named like a
// build.
void remove_old_builds(const std::filesystem::path& folder);

}  // namespace dtrun::cmd
