// manifest.json of a checkpoint: {"FILE": {"size": BYTES, "sha256": "HEX"}, …}. It is written last and read
// first; a file that differs from its entry is damaged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "proto/core/status.h"

namespace dtrun::worker {

inline constexpr char kManifestFile[] = "manifest.json";

struct FileDigest {
  std::uint64_t size = 0;
  std::string sha256;  // lower-case hex
  bool operator==(const FileDigest&) const = default;
};
using Manifest = std::map<std::string, FileDigest>;

// The digest of a file that consists of these pieces.
FileDigest digest_of(std::span<const std::string_view> pieces);

std::string to_json(const Manifest& manifest);
Result<Manifest> parse_manifest(std::string_view text);  // EX_NOINPUT

// The file's whole content, once size and checksum are as the manifest says. Failures have EX_NOINPUT and
// name the file.
Result<std::string> read_verified(const std::filesystem::path& directory, const std::string& file,
                                  const Manifest& manifest);

// Any file's content. EX_NOINPUT.
Result<std::string> read_whole(const std::filesystem::path& path);

}  // namespace dtrun::worker
