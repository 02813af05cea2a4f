#include "agent/core/gpu_trouble.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "proto/core/number.h"
#include "proto/core/text.h"

namespace dtrun {
namespace {

struct KnownXid {
  int number;
  const char *what, *advice;
};

// The Xids of NVIDIA's catalogue that end training.
constexpr char kProgram[] = "most likely the program's fault: run it under compute-sanitizer";
constexpr char kDrain[] = "drain this node and reset the GPU";
constexpr KnownXid kKnown[] = {
    {13, "a kernel did what it must not", kProgram},
    {31, "a kernel touched memory that is not its own", kProgram},
    {43, "the GPU stopped the program's work", kProgram},
    {48, "memory error that ECC could not correct", kDrain},
    {61, "the GPU's internal controller stopped", kDrain},
    {62, "the GPU's internal controller halted", kDrain},
    {63, "a row of its memory is to be replaced", "reset the GPU once the job is over"},
    {64, "a row of its memory could not be replaced", "drain this node and have the GPU replaced"},
    {74, "NVLink error", "drain this node and check the links (nvidia-smi nvlink -e)"},
    {79, "GPU has fallen off the bus", "drain this node and power-cycle it"},
    {92, "many memory errors that ECC corrected", "have the GPU tested if it goes on"},
    {94, "memory error that ECC could not correct, contained to this program",
     "start again, and reset the GPU once the job is over"},
    {95, "memory error that ECC could not correct or contain", kDrain},
    {119, "the GPU's system processor (GSP) does not answer", "drain this node and power-cycle it"},
    {120, "error of the GPU's system processor (GSP)", kDrain},
};

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string lowered(std::string_view text) {
  std::string out;
  std::transform(text.begin(), text.end(), std::back_inserter(out), lower);
  return out;
}

bool is_address(std::string_view text) {
  return text.size() >= 7 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isxdigit(c) != 0 || c == ':' || c == '.';
         });
}

bool same_device(std::string_view pci, std::string_view xid) {
  return !xid.empty() && lowered(pci).starts_with(lowered(xid));
}

class Lines {
 public:
  void add(const std::string& line) {
    if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) lines_.push_back(line);
  }
  std::string text() const { return join(lines_, "\n"); }

 private:
  std::vector<std::string> lines_;
};

}  // namespace

std::optional<Xid> xid_in(std::string_view line) {
  static constexpr std::string_view kBegin = "NVRM: Xid (", kBus = "PCI:";
  const std::size_t begin = line.find(kBegin);
  if (begin == std::string_view::npos) return std::nullopt;
  line.remove_prefix(begin + kBegin.size());
  if (line.starts_with(kBus)) line.remove_prefix(kBus.size());
  const std::size_t end = line.find("): ");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view address = line.substr(0, std::min(end, line.find(' ')));
  line.remove_prefix(end + 3);
  const auto number = parse_leading_number<int>(line);
  if (!number || *number <= 0 || !is_address(address)) return std::nullopt;
  return Xid{.pci = lowered(address), .number = *number};
}

std::string xid_text(int number) {
  const std::string name = "Xid " + std::to_string(number);
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const KnownXid& entry) { return entry.number == number; });
  if (known == std::end(kKnown)) return name + "; NVIDIA's Xid catalogue tells what it means";
  return name + ", " + known->what + "; " + known->advice;
}

std::string gpu_trouble(const std::vector<Xid>& xids, const GpuReading& before,
                        const std::optional<GpuReading>& now, const std::string& pci) {
  Lines lines;
  for (std::size_t i = 0; i < before.gpus.size(); ++i) {
    const PhysicalGpu& gpu = before.gpus[i];
    if (!pci.empty() && lowered(gpu.pci) != lowered(pci)) continue;
    const std::string name =
        "GPU " + std::to_string(i) + (gpu.pci.empty() ? "" : " (" + gpu.pci + ")") + ": ";
    bool told = false;
    for (const Xid& xid : xids) {
      if (!same_device(gpu.pci, xid.pci)) continue;
      lines.add(name + xid_text(xid.number));
      told = true;
    }
    // Both come with an Xid. Without one the kernel's log could not be read.
    if (told || !now || i >= now->gpus.size()) continue;
    const PhysicalGpu& after = now->gpus[i];
    if (after.lost && !gpu.lost)
      lines.add(name + "it is lost, says the driver; drain this node and power-cycle it");
    if (after.ecc_errors && gpu.ecc_errors && *after.ecc_errors > *gpu.ecc_errors)
      lines.add(name + std::to_string(*after.ecc_errors - *gpu.ecc_errors) +
                " memory errors that ECC could not correct, since the job began; " + kDrain);
  }
  return lines.text();
}

}  // namespace dtrun
