#include "cmd/job_files/pod_values.h"

#include <doctest/doctest.h>

#include <string>

namespace dtrun::cmd::pod_values_test {
namespace {

bool takes(Status (*check)(const Given&), const std::string& value) {
  const Status status = check({.value = value, .source = "--x"});
  if (!status.ok()) {
    CHECK(status.exit_code() == 64);
    CHECK(status.message().starts_with("--x=" + value + ": expected "));
  }
  return status.ok();
}

}  // namespace

TEST_CASE("an image has a tag that stands for one build, or a digest") {
  for (const char* image : {"dtrun:1", "registry.example:5000/team/dtrun:0.1.0-cuda",
                            "r/dtrun@sha256:0123abcd", "r/dtrun:latest@sha256:0123abcd", "r/dtrun:latest2"})
    CHECK_MESSAGE(takes(check_image, image), image);
  for (const char* image : {"", "dtrun", "dtrun:latest", "dtrun:", "registry.example:5000/dtrun",
                            "r:1/dtrun:latest", "a b:1", "r/dtr\xc3\xbcn:1", "dtrun:1\n"})
    CHECK_MESSAGE(!takes(check_image, image), image);
}

TEST_CASE("CPUs are a number, or thousandths of one") {
  for (const char* cpus : {"8", "0.5", "500m", "1m", "0.001", ".5", "2."})
    CHECK_MESSAGE(takes(check_cpus, cpus), cpus);
  for (const char* cpus :
       {"", "0", "0m", "0.0009", "0.9m", "-1", "8x", "8Gi", "1.2.3", ".", "m", "8 ", " 8", "+8"})
    CHECK_MESSAGE(!takes(check_cpus, cpus), cpus);
}

TEST_CASE("memory has one of Kubernetes' units, and is some") {
  for (const char* memory :
       {"16Gi", "1.5G", "1Mi", "1048576", "1049k", "1024Ki", "1T", "1Ei", "1E", "16e9", "16E9"})
    CHECK_MESSAGE(takes(check_memory, memory), memory);
  for (const char* memory : {"", "5XX", "16", "16GB", "16gi", "16g", "16K", "16m", "1023Ki", "1048575", "0Gi",
                             "-1Gi", "Gi", "1Gi ", "1i", "1e", "1e9x", "1ki"})
    CHECK_MESSAGE(!takes(check_memory, memory), memory);
}

}  // namespace dtrun::cmd::pod_values_test
