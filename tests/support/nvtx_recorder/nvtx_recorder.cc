// A tool that NVTX finds by NVTX_INJECTION64_PATH, as it finds Nsight Systems: writes each begin and end of a
// range as a line to the file DTRUN_TEST_NVTX, in one write each: "+ THREAD DOMAIN NAME", "- THREAD DOMAIN".
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

int file = -1;

void write_line(const std::string& line) {
  const std::string text = line + "\n";
  if (write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
}

std::string thread() { return std::to_string(gettid()); }

// A domain is its name.
nvtxDomainHandle_t create(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}
const std::string& name_of(nvtxDomainHandle_t domain) { return *reinterpret_cast<std::string*>(domain); }

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  write_line("+ " + thread() + " " + name_of(domain) + " " + event->message.ascii);
  return 0;
}
int pop(nvtxDomainHandle_t domain) {
  write_line("- " + thread() + " " + name_of(domain));
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t export_table) {
  const char* const path = std::getenv("DTRUN_TEST_NVTX");
  if (path == nullptr) return 0;
  file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (file < 0 || callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainCreateA)
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
