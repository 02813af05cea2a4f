// The last wait of a process: for those who take what it has queued.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "agent/output/console.h"
#include "agent/system/disk.h"
#include "agent/system/loop.h"

namespace dtrun::agent {

// Runs the loop until the console's text is written and the disks are idle. Gives either up once it has taken
// nothing for `patience`, and says on the console what was lost. Once `hurried`, the console is given up
// without a word.
void flush(Loop& loop, Console& console, const std::vector<Disk*>& disks, std::chrono::milliseconds patience,
           const std::function<bool()>& hurried);

}  // namespace dtrun::agent
