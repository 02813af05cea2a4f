#include "cmd/check/build.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr std::size_t kMostNotes = 1u << 16;  // bytes

constexpr std::size_t padded(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// The id among the notes of one segment (elf(5)).
std::string id_in(const std::vector<unsigned char>& notes) {
  for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    const std::size_t name = at + sizeof note, text = name + padded(note.n_namesz);
    if (text + note.n_descsz > notes.size()) return "";
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes.data() + name, "GNU", 4) == 0)
      return hexadecimal({notes.data() + text, note.n_descsz});
    at = text + padded(note.n_descsz);
  }
  return "";
}

template <typename T>
bool read_at(std::ifstream& file, std::uint64_t offset, T* value) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(value), sizeof *value));
}

}  // namespace

std::string build_id(const std::filesystem::path& program) {
  std::ifstream file(program, std::ios::binary);
  Elf64_Ehdr header{};
  if (!read_at(file, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "";
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(file, header.e_phoff + static_cast<std::uint64_t>(i) * sizeof segment, &segment)) return "";
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNotes) continue;
    std::vector<unsigned char> notes(segment.p_filesz);
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    if (!file.read(reinterpret_cast<char*>(notes.data()), static_cast<std::streamsize>(notes.size())))
      return "";
    if (std::string id = id_in(notes); !id.empty()) return id;
  }
  return "";
}

std::string own_build() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string own = build_id("/proc/self/exe"), workers = build_id(self.parent_path() / "dtrun-worker");
  return own.substr(0, 16) + "-" + (workers.empty() ? "none" : workers.substr(0, 16));
}

}  // namespace dtrun::cmd
