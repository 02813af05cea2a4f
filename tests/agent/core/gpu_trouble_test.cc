#include "agent/core/gpu_trouble.h"

#include <doctest/doctest.h>

#include <random>

namespace dtrun::gpu_trouble_test {

namespace {

Xid found(std::string_view line) {
  const auto xid = xid_in(line);
  REQUIRE(xid);
  return *xid;
}

GpuReading two() {
  return {.gpus = {{.pci = "0000:5e:00.0", .ecc_errors = 2}, {.pci = "0000:af:00.0", .ecc_errors = 0}}};
}

}  // namespace

TEST_CASE("an Xid in the kernel's log, as drivers of all ages write it") {
  CHECK(
      found("4,1234,56789,-;NVRM: Xid (PCI:0000:5e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen "
            "off the bus.")
          .number == 79);
  CHECK(found("NVRM: Xid (PCI:0000:5E:00): 31, pid=1234, name=python3, Ch 00000008").pci == "0000:5e:00");
  CHECK(found("NVRM: Xid (0000:03:00): 13, Graphics SM Warp Exception").number == 13);
  CHECK(found("NVRM: Xid (PCI:0000:b3:00 GPC 2 TPC 1): 13, pid=7").pci == "0000:b3:00");
  CHECK(found("NVRM: Xid (PCI:0000:5e:00): 119").number == 119);
}

TEST_CASE("what is no Xid is none") {
  for (const char* line : {"", "NVRM: Xid (", "NVRM: Xid (PCI:0000:5e:00)", "NVRM: Xid (PCI:0000:5e:00): ",
                           "NVRM: Xid (PCI:): 79", "NVRM: Xid (PCI:0000:5e:00): pid",
                           "NVRM: Xid (PCI:0000:5e:00): -3, x", "NVRM: Xid (PCI:0000:5e:00): 0",
                           "NVRM: Xid (PCI:somewhere): 79", "NVRM: Xid (PCI:0000:5e:00): 99999999999999",
                           "Xid (PCI:0000:5e:00): 79", "NVRM: GPU at PCI:0000:5e:00: GPU-1234"})
    CHECK_FALSE_MESSAGE(xid_in(line).has_value(), line);
}

TEST_CASE("no line of a log harms, whatever is in it") {
  std::mt19937 random(7);
  const std::string line = "6,77,1,-;NVRM: Xid (PCI:0000:5e:00): 79, pid=1, GPU has fallen off the bus.\n";
  int hits = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string broken = line.substr(random() % line.size());
    for (int change = static_cast<int>(random() % 4); change > 0; --change)
      broken[random() % broken.size()] = static_cast<char>(random() % 256);
    if (random() % 4 == 0) broken.resize(random() % broken.size());
    const auto xid = xid_in(broken);
    hits += xid.has_value();
    if (xid) CHECK(xid->number > 0);
  }
  CHECK(hits > 0);
}

TEST_CASE("the common ones are told in words, with what to do") {
  CHECK(xid_text(79) == "Xid 79, GPU has fallen off the bus; drain this node and power-cycle it");
  CHECK(xid_text(31).starts_with(
      "Xid 31, a kernel touched memory that is not its own; most likely the program"));
  for (int number : {13, 31, 43, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120}) {
    CHECK(xid_text(number).find(", ") != std::string::npos);
    CHECK(xid_text(number).find("; ") != std::string::npos);
  }
  CHECK(xid_text(7) == "Xid 7; NVIDIA's Xid catalogue tells what it means");
}

TEST_CASE(
    "a failure is told with its own GPU's trouble, or with that of all if it is not known which it had") {
  const std::vector<Xid> xids{{.pci = "0000:af:00", .number = 79},
                              {.pci = "0000:af:00", .number = 79},
                              {.pci = "0000:5e:00", .number = 74},
                              {.pci = "0000:01:00", .number = 13}};
  CHECK(gpu_trouble(xids, two(), {}, "0000:AF:00.0") ==
        "GPU 1 (0000:af:00.0): Xid 79, GPU has fallen off the bus; drain this node and power-cycle it");
  CHECK(gpu_trouble(xids, two(), {}, "").starts_with("GPU 0 (0000:5e:00.0): Xid 74, NVLink error; "));
  CHECK(gpu_trouble(xids, two(), {}, "").find("\nGPU 1 (0000:af:00.0): Xid 79") != std::string::npos);
  CHECK(gpu_trouble(xids, two(), {}, "0000:77:00.0") == "");
  CHECK(gpu_trouble({}, two(), two(), "") == "");
}

TEST_CASE("where the kernel's log may not be read the driver's counters tell") {
  GpuReading now = two();
  now.gpus[0].ecc_errors = 5;
  now.gpus[1].lost = true;
  now.gpus[1].pci = "";  // it does not answer
  CHECK(gpu_trouble({}, two(), now, "0000:5e:00.0") ==
        "GPU 0 (0000:5e:00.0): 3 memory errors that ECC could not correct, since the job began; drain this "
        "node and "
        "reset the GPU");
  CHECK(gpu_trouble({}, two(), now, "0000:af:00.0") ==
        "GPU 1 (0000:af:00.0): it is lost, says the driver; drain this node and power-cycle it");
  // The log has told it already.
  CHECK(gpu_trouble({{.pci = "0000:af:00", .number = 79}}, two(), now, "0000:af:00.0").find("lost") ==
        std::string::npos);
  now.gpus[0].ecc_errors.reset();
  CHECK(gpu_trouble({}, two(), now, "0000:5e:00.0") == "");
  GpuReading lost_before = two();
  lost_before.gpus[1].lost = true;
  CHECK(gpu_trouble({}, lost_before, now, "") == "");
  now.gpus.clear();
  CHECK(gpu_trouble({}, two(), now, "") == "");
}

}  // namespace dtrun::gpu_trouble_test
