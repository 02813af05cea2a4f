#include "rendezvous/http/process_facts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "proto/base/text_in.h"
#include "proto/core/process_stat.h"
#include "proto/core/text.h"

namespace dtrun::rendezvous {
namespace {

double boot_time(const std::string& system_stat) {
  for (const std::string& line : split(system_stat))
    if (line.starts_with("btime ")) return std::strtod(line.c_str() + 6, nullptr);
  return 0;
}

}  // namespace

ProcessFacts process_facts_in(const std::string& stat, const std::string& system_stat,
                              double ticks_per_second, double page_bytes) {
  ProcessFacts facts;
  const std::optional<ProcessStat> process = parse_stat(stat);
  if (!process) return facts;
  facts.cpu_seconds = static_cast<double>(process->own_ticks) / ticks_per_second;
  facts.threads = static_cast<double>(process->threads);
  facts.start_time = boot_time(system_stat) + static_cast<double>(process->start_ticks) / ticks_per_second;
  facts.virtual_bytes = static_cast<double>(process->virtual_bytes);
  facts.resident_bytes = static_cast<double>(process->resident_pages) * page_bytes;
  return facts;
}

ProcessFacts read_process_facts() {
  ProcessFacts facts =
      process_facts_in(text_in("/proc/self/stat"), text_in("/proc/stat"),
                       static_cast<double>(sysconf(_SC_CLK_TCK)), static_cast<double>(sysconf(_SC_PAGESIZE)));
  std::error_code error;
  for (auto file = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && file != std::filesystem::directory_iterator(); file.increment(error))
    ++facts.open_files;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.most_files = static_cast<double>(limit.rlim_cur);
  return facts;
}

}  // namespace dtrun::rendezvous
