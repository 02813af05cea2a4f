#include "rendezvous/http/process_facts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace dtrun::rendezvous {
namespace {

std::string text_of(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

double boot_time(const std::string& system_stat) {
  std::istringstream lines(system_stat);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("btime ")) return std::strtod(line.c_str() + 6, nullptr);
  return 0;
}

}  // namespace

ProcessFacts process_facts_in(const std::string& stat, const std::string& system_stat,
                              double ticks_per_second, double page_bytes) {
  ProcessFacts facts;
  const std::size_t name_end = stat.rfind(')');  // a name may have anything in it
  if (name_end == stat.npos) return facts;
  std::istringstream rest(stat.substr(name_end + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  // Numbers of the fields as in proc(5), where the state behind the name is field 3.
  const auto field = [&](std::size_t number) {
    return number - 3 < fields.size() ? std::strtod(fields[number - 3].c_str(), nullptr) : 0.0;
  };
  facts.cpu_seconds = (field(14) + field(15)) / ticks_per_second;
  facts.threads = field(20);
  facts.start_time = boot_time(system_stat) + field(22) / ticks_per_second;
  facts.virtual_bytes = field(23);
  facts.resident_bytes = field(24) * page_bytes;
  return facts;
}

ProcessFacts read_process_facts() {
  ProcessFacts facts =
      process_facts_in(text_of("/proc/self/stat"), text_of("/proc/stat"),
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
