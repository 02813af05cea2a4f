// Files that are neither text nor what they should be, told by their first bytes.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace dtrun::worker {

// "is compressed with gzip; unpack it first (gunzip)". Empty: nothing that is known.
inline std::string foreign_kind(std::string_view beginning) {
  struct Kind {
    std::string_view begins;
    const char* text;
  };
  static constexpr Kind kKinds[] = {
      {"\x1f\x8b", "is compressed with gzip; unpack it first (gunzip)"},
      {"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it first (unzstd)"},
      {"\xfd"
       "7zXZ",
       "is compressed with xz; unpack it first (unxz)"},
      {"BZh", "is compressed with bzip2; unpack it first (bunzip2)"},
      {"PK\x03\x04", "is a zip archive, as a workbook of Excel is; unpack it, or save it as text, first"},
      {"PAR1", "is a Parquet file; write it as text, for example with pandas"},
      {"\x93NUMPY", "is a NumPy array; write it as text, for example with numpy.savetxt"},
      {"\xff\xfe", "is UTF-16; write it as UTF-8 (iconv -f UTF-16 -t UTF-8)"},
      {"\xfe\xff", "is UTF-16; write it as UTF-8 (iconv -f UTF-16 -t UTF-8)"},
      {"version https://git-lfs",
       "is a Git LFS pointer, not the file that it stands for: git lfs pull fetches that"}};
  const auto* const kind =
      std::ranges::find_if(kKinds, [&](const Kind& one) { return beginning.starts_with(one.begins); });
  return kind == std::end(kKinds) ? "" : kind->text;
}

inline std::string foreign_kind(std::span<const std::uint8_t> beginning) {
  return foreign_kind(std::string_view(reinterpret_cast<const char*>(beginning.data()), beginning.size()));
}

}  // namespace dtrun::worker
