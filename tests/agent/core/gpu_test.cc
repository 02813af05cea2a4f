#include "agent/core/gpu.h"

#include <doctest/doctest.h>

namespace dtrun::gpu_test {

namespace {

constexpr std::uint64_t kH200 = 143771ull << 20;

PhysicalGpu gpu(const std::string& uuid, const std::string& name = "NVIDIA H200") {
  return {.uuid = uuid, .name = name, .pci = "0000:00:00.0", .memory = kH200};
}

std::vector<PhysicalGpu> four() {
  return {gpu("GPU-8932f937-d72c"), gpu("GPU-8932aaaa-0000"), gpu("GPU-11111111-2222"), gpu("GPU-5555")};
}

PhysicalGpu in_mig_mode(const std::string& uuid, const std::vector<std::string>& instances) {
  PhysicalGpu whole = gpu(uuid);
  whole.mig = true;
  for (std::size_t i = 0; i < instances.size(); ++i)
    whole.instances.push_back({.uuid = instances[i],
                               .name = "NVIDIA H200 MIG 1g.18gb",
                               .memory = std::uint64_t{16} << 30,
                               .gpu_instance = 7 + static_cast<int>(i),
                               .compute_instance = 0});
  return whole;
}

// nvidia-smi's numbers, in CUDA's order.
std::vector<int> shown(const char* visible, const std::vector<PhysicalGpu>& gpus = four()) {
  std::vector<int> numbers;
  for (const Gpu& one : visible_gpus(gpus, visible)) {
    CHECK(one.index == static_cast<int>(numbers.size()));
    numbers.push_back(one.number);
  }
  return numbers;
}

using Numbers = std::vector<int>;

}  // namespace

TEST_CASE("without CUDA_VISIBLE_DEVICES CUDA shows all GPUs") {
  CHECK(shown(nullptr) == Numbers{0, 1, 2, 3});
}

TEST_CASE("a list of numbers chooses and orders; the first that names no GPU ends it") {
  CHECK(shown("2,0") == Numbers{2, 0});
  CHECK(shown(" 3, 1") == Numbers{3, 1});
  CHECK(shown("0,2,-1,1") == Numbers{0, 2});
  CHECK(shown("0,4,1") == Numbers{0});
  CHECK(shown("0,99999999999999999999,1") == Numbers{0});
  CHECK(shown("1,,2") == Numbers{1});
  CHECK(shown("1gpu,2ampere") == Numbers{1, 2});
  CHECK(shown("1,GPU-5555") == Numbers{1});
}

TEST_CASE("what names no GPU at all shows none") {
  for (const char* none : {"", "-1", "NoDevFiles", "void", "none", ",", ",0", "GPU-", "GPU-0", "MIG-1"})
    CHECK_MESSAGE(shown(none).empty(), none);
}

TEST_CASE("a GPU named twice empties the list") {
  CHECK(shown("0,1,0").empty());
  CHECK(shown("1,01").empty());
  CHECK(shown("GPU-5555,GPU-55").empty());
  CHECK(shown("0,-1,0") == Numbers{0});  // the list ends before
}

TEST_CASE("a UUID may be as short as it is unique") {
  CHECK(shown("GPU-8932f937-d72c,GPU-5") == Numbers{0, 3});
  CHECK(shown("GPU-8932F") == Numbers{0});
  CHECK(shown("GPU-1,GPU-8932") == Numbers{2});  // two begin so
  CHECK(shown("GPU-1,3") == Numbers{2});         // no mixture of forms
  CHECK(shown("GPU-8932f937-d72c-and-more").empty());
}

TEST_CASE("of a GPU in MIG mode CUDA shows one instance, and no GPU beside it") {
  const std::vector<PhysicalGpu> gpus = {gpu("GPU-a"), in_mig_mode("GPU-b", {"MIG-1", "MIG-2"}),
                                         in_mig_mode("GPU-c", {})};
  const auto only = [&](const char* visible) {
    const std::vector<Gpu> all = visible_gpus(gpus, visible);
    REQUIRE(all.size() == 1);
    return all[0];
  };
  CHECK(only(nullptr).uuid == "MIG-1");
  CHECK(only(nullptr).number == 1);
  CHECK(only(nullptr).mig);
  CHECK(only(nullptr).memory == std::uint64_t{16} << 30);
  CHECK(only("0,1").uuid == "MIG-1");
  CHECK(only("1").uuid == "MIG-1");
  CHECK(only("GPU-b").uuid == "MIG-1");
  CHECK(only("0,2").uuid == "GPU-a");
  CHECK(only("MIG-2").uuid == "MIG-2");
  CHECK(only("MIG-2,MIG-1").uuid == "MIG-2");
  CHECK(only("MIG-GPU-b/8/0").uuid == "MIG-2");
  CHECK(shown("2", gpus).empty());
  CHECK(shown("MIG-3", gpus).empty());
  CHECK(shown("MIG-GPU-b/9/0", gpus).empty());
  CHECK(shown("MIG-", gpus).empty());  // several begin so
}

TEST_CASE("why there is no GPU") {
  const auto why = [](const GpuReading& reading, const char* visible) {
    const GpuSight sight = sight_of(reading, visible);
    CHECK(sight.gpus.empty());
    return sight.why_none;
  };
  CHECK(why({.gpus = {}, .failure = "no NVIDIA driver"}, "0") == "no NVIDIA driver");
  CHECK(why({.gpus = {}}, nullptr) == "the NVIDIA driver shows none");
  CHECK(why({.gpus = four()}, "") == "CUDA_VISIBLE_DEVICES= shows none of the 4 here");
  CHECK(why({.gpus = {in_mig_mode("GPU-a", {})}}, nullptr) == "in MIG mode, without an instance");
  CHECK(sight_of({.gpus = four()}, "1").why_none == "");
  CHECK(sight_of({.gpus = four(), .driver = "580.1", .cuda = 13000}, "1").cuda == 13000);
}

TEST_CASE("GPUs in few words") {
  CHECK(gpus_text(visible_gpus(four(), nullptr)) == "0-3 (NVIDIA H200, 140 GiB each)");
  CHECK(gpus_text(visible_gpus(four(), "3,0,1")) == "3, 0-1 (NVIDIA H200, 140 GiB each)");
  CHECK(gpus_text(visible_gpus(four(), "2")) == "2 (NVIDIA H200, 140 GiB)");
  CHECK(gpus_text({{.index = 0, .number = 4}}) == "4");
  std::vector<PhysicalGpu> mixed = four();
  mixed[3].name = "NVIDIA L4";
  mixed[3].memory = std::uint64_t{24} << 30;
  CHECK(gpus_text(visible_gpus(mixed, nullptr)) ==
        "0-2 (NVIDIA H200, 140 GiB each); 3 (NVIDIA L4, 24.0 GiB)");
  CHECK(gpus_text({}) == "");
  CHECK(gpu_count_text(visible_gpus(four(), nullptr)) == "4 GPUs (NVIDIA H200)");
  CHECK(gpu_count_text({{.index = 0, .number = 4}}) == "1 GPU");
  CHECK(cuda_version_text(12040) == "12.4");
}

}  // namespace dtrun::gpu_test
