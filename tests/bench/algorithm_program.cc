// Lists the matmuls of jobs, searches algorithms for each, and prints a table of them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <ostream>

#include "proto/core/exit_codes.h"
#include "tests/bench/algorithm_search.h"
#include "tests/bench/jobs.h"
#include "tests/bench/multiplication.h"
#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kSkipped = 77;

std::string decimal(double number, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

// " 00000000deadbeef" for each word.
std::string hexadecimal(const AlgorithmWords& words) {
  std::string text;
  for (const std::uint64_t word : words) {
    char digits[18];
    std::snprintf(digits, sizeof digits, " %016llx", static_cast<unsigned long long>(word));
    text += digits;
  }
  return text;
}

std::string milliseconds(double microseconds) { return decimal(microseconds / 1000, 3) + " ms"; }

// The time of the library's first choice, or of the best if the first has a fault, so that sums are fair.
double first_microseconds(const Search& search) {
  const Candidate& first = search.candidates.front();
  return first.fault.empty() ? first.microseconds : search.candidates[*search.best].microseconds;
}

void print_row(const MatmulShape& shape, const Search& search, std::ostream& out) {
  const auto bad = std::ranges::count_if(search.candidates,
                                         [](const Candidate& candidate) { return !candidate.fault.empty(); });
  out << "# " << name_of(shape) << ": " << search.candidates.size() << " algorithms, " << bad
      << " of them bad; " << search.unsplit_alike << " of " << search.unsplit
      << " with split 1 have the same bits\n";
  for (const Candidate& candidate : search.candidates)
    if (!candidate.fault.empty()) out << "#   " << candidate.name << ": " << candidate.fault << "\n";
  if (!search.best) {
    out << "#   no algorithm can be taken\n";
    return;
  }
  const Candidate& best = search.candidates[*search.best];
  const Candidate& first = search.candidates.front();
  out << title_of(shape) << hexadecimal(best.words) << "  # " << best.name << ": "
      << decimal(best.microseconds, 1) << " us; "
      << (*search.best == 0 ? "the first choice"
                            : "the first choice, " + first.name + ": " +
                                  (first.fault.empty() ? decimal(first.microseconds, 1) + " us" : "bad"))
      << "\n";
}

struct Request {
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<std::string> files;
};

Request request_of(const std::vector<std::string>& arguments) {
  Request request;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--seconds" && i + 1 < arguments.size())
      request.seconds = std::atof(arguments[++i].c_str());
    else
      request.files.push_back(arguments[i]);
  }
  if (request.files.empty() || request.seconds <= 0)
    throw WorkerError(kExitUsage, "usage: gpu_algorithms [--seconds S] CONFIG.json...");
  return request;
}

int search_all(const Request& request, std::ostream& out, const Timer& timer) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "asking what it is");
  AlgorithmSearch search(0, timer);

  // In the order of the jobs: the first matmuls matter most if time runs out.
  std::map<std::string, std::map<MatmulShape, int>> by_job;
  std::map<MatmulShape, Search> found;
  int without_time = 0;
  for (const std::string& file : request.files) {
    const Job job = job_of(file);
    const auto& matmuls = by_job[job.name] =
        products_of(schedule_of(job, [&](const MatmulShape& shape) { return search.can(shape); }));
    for (const auto& [shape, times] : matmuls) {
      if (found.contains(shape)) continue;
      if (std::chrono::duration<double>(Clock::now() - begin).count() > request.seconds)
        ++without_time;
      else
        found.emplace(shape, search.search(shape));
    }
  }

  out << "[" << platform_of(properties) << "]\n";
  int rows = 0, faster = 0, bad = 0, skipped = 0, unlike = 0;
  for (const auto& [shape, result] : found) {
    if (!result.skipped.empty()) {
      out << "# " << name_of(shape) << ": left out: " << result.skipped << "\n";
      ++skipped;
      continue;
    }
    print_row(shape, result, out);
    (result.best ? rows : bad) += 1;
    faster += static_cast<int>(result.best.value_or(0) != 0);
    unlike += static_cast<int>(result.unsplit_alike != result.unsplit);
  }
  for (const auto& [job, matmuls] : by_job) {
    double by_table = 0, by_first = 0;
    for (const auto& [shape, times] : matmuls) {
      const auto result = found.find(shape);
      if (result == found.end() || !result->second.best) continue;
      by_table += times * result->second.candidates[*result->second.best].microseconds;
      by_first += times * first_microseconds(result->second);
    }
    out << "# " << job << ": a microbatch's matmuls take " << milliseconds(by_table)
        << ", by the first choices " << milliseconds(by_first) << "\n";
  }
  out << "# with split 1, tiles change bits of " << unlike << " of " << found.size() << " matmuls\n";
  out << "# " << rows << " rows, " << faster << " of them not of the first choice; " << bad
      << " matmuls without a good algorithm, " << skipped << " without room, " << without_time
      << " without time\n";
  return 0;
}

}  // namespace

int search_algorithms(const std::vector<std::string>& arguments, std::ostream& out, const Timer& timer) {
  try {
    const Request request = request_of(arguments);
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
      out << "skipped: no GPU\n";
      return kSkipped;
    }
    return search_all(request, out, timer);
  } catch (const WorkerError& error) {
    out << error.what() << "\n";
    return error.exit_code();
  }
}

}  // namespace dtrun::worker::cuda
