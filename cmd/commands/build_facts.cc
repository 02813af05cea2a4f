#include "cmd/commands/build_facts.h"

#include <elf.h>
#include <grpcpp/grpcpp.h>
#include <link.h>
#include <openssl/crypto.h>

#include <cstring>
#include <string_view>

namespace dtrun::cmd {
namespace {

std::size_t padded(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// The build id in the notes of a segment; "" if they have none.
std::string id_in(std::string_view notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t name = sizeof note, value = name + padded(note.n_namesz);
    if (value + padded(note.n_descsz) > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(name, note.n_namesz) == std::string_view("GNU\0", 4)) {
      std::string id;
      for (const char byte : notes.substr(value, note.n_descsz)) {
        id += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
        id += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
      }
      return id;
    }
    notes.remove_prefix(value + padded(note.n_descsz));
  }
  return "";
}

// The first object is the program itself.
int find_id(dl_phdr_info* object, std::size_t, void* found) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* const begin = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    const std::string id = id_in({begin, segment.p_memsz});
    if (!id.empty()) *static_cast<std::string*>(found) = id;
  }
  return 1;
}

}  // namespace

std::string build_facts() {
  std::string id;
  dl_iterate_phdr(find_id, &id);
  return "gRPC " + grpc::Version() + ", " + OpenSSL_version(OPENSSL_VERSION) + ", build " +
         (id.empty() ? "unknown" : id);
}

}  // namespace dtrun::cmd
