#include "tests/cuda_on_cpu/kernel_names.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

namespace cuda_on_cpu {
namespace {

// The program's symbol table, by address in the file. Kernels are static: dladdr does not know them.
std::map<std::uintptr_t, std::string> read_symbols() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::map<std::uintptr_t, std::string> symbols;
  ElfW(Ehdr) header;
  if (bytes.size() < sizeof header) return symbols;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto* const sections = reinterpret_cast<const ElfW(Shdr)*>(bytes.data() + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* const entries = reinterpret_cast<const ElfW(Sym)*>(bytes.data() + sections[i].sh_offset);
    const char* const names = bytes.data() + sections[sections[i].sh_link].sh_offset;
    for (std::size_t j = 0; j < sections[i].sh_size / sizeof(ElfW(Sym)); ++j) {
      if ((entries[j].st_info & 0xf) == STT_FUNC) symbols[entries[j].st_value] = names + entries[j].st_name;
    }
  }
  return symbols;
}

std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
        return 1;  // the program is the first
      },
      &address);
  return address;
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : symbol;
  std::free(text);
  return name;
}

// "void dtrun::(anonymous namespace)::add<float>(float*, int)" is "add<float>".
std::string short_name(const std::string& full) {
  std::size_t begin = 0, end = full.size();
  int depth = 0;
  for (std::size_t i = 0; i < full.size(); ++i) {
    const bool arguments = full[i] == '(' && full.compare(i, 11, "(anonymous ") != 0;
    if (depth == 0 && arguments) {
      end = i;
      break;
    }
    if (full[i] == '<' || full[i] == '(') ++depth;
    if (full[i] == '>' || full[i] == ')') --depth;
    if (depth == 0 && (full[i] == ':' || full[i] == ' ')) begin = i + 1;
  }
  return full.substr(begin, end - begin);
}

}  // namespace

std::string function_name(const void* function) {
  static const std::map<std::uintptr_t, std::string>& symbols = *new std::map(read_symbols());
  const auto found = symbols.find(reinterpret_cast<std::uintptr_t>(function) - load_address());
  if (found != symbols.end()) return short_name(demangled(found->second));
  char digits[32];
  std::snprintf(digits, sizeof digits, "%p", function);
  return digits;
}

}  // namespace cuda_on_cpu
