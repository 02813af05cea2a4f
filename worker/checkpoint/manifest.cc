#include "worker/checkpoint/manifest.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <system_error>

#include "proto/json/json.h"
#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/base/sha256.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kReadAtOnce = 16u << 20;  // read between two signs of life

Status fault(const fs::path& path, const std::string& what) {
  return Status(kExitNoInput, path.string() + ": " + what);
}

}  // namespace

FileDigest digest_of(std::span<const std::string_view> pieces) {
  Sha256 hash;
  FileDigest digest;
  for (std::string_view piece : pieces) {
    hash.update(piece);
    digest.size += piece.size();
  }
  digest.sha256 = hash.hex();
  return digest;
}

std::string to_json(const Manifest& manifest) {
  Json json = Json::object();
  for (const auto& [file, digest] : manifest) json[file] = {{"size", digest.size}, {"sha256", digest.sha256}};
  return json_text(json, 2) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text) {
  const auto json = parse_strict_json(text);
  if (!json.ok()) return Status(kExitNoInput, json.status().message());
  const Status malformed(kExitNoInput, "is not {\"FILE\": {\"size\": …, \"sha256\": …}, …}");
  if (!json.value().value.is_object() || !json.value().repeated.empty()) return malformed;
  Manifest manifest;
  for (const auto& [file, entry] : json.value().value.items()) {
    if (!entry.is_object() || !entry.contains("size") || !entry["size"].is_number_unsigned() ||
        !entry.contains("sha256") || !entry["sha256"].is_string()) {
      return malformed;
    }
    manifest[file] = {entry["size"].get<std::uint64_t>(), entry["sha256"].get<std::string>()};
  }
  return manifest;
}

Result<std::string> read_whole(const fs::path& path) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) {
    return fault(path, error == std::errc::no_such_file_or_directory ? "is missing"
                                                                     : "cannot be read: " + error.message());
  }
  std::string content(size, '\0');
  std::ifstream stream(path, std::ios::binary);
  errno = 0;
  for (std::uint64_t at = 0; stream && at < size; at += kReadAtOnce) {
    stream.read(content.data() + at, static_cast<std::streamsize>(std::min(kReadAtOnce, size - at)));
    Pulse::beat();
  }
  if (!stream) {
    return fault(
        path, errno ? std::string("cannot be read: ") + std::strerror(errno) : "became shorter while read");
  }
  return content;
}

Result<std::string> read_verified(const fs::path& directory, const std::string& file,
                                  const Manifest& manifest) {
  const fs::path path = directory / file;
  const auto entry = manifest.find(file);
  if (entry == manifest.end()) return fault(directory / kManifestFile, "does not list " + file);
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  // The size is checked first: that costs nothing, and a file of another size is never read into memory.
  if (!error && size != entry->second.size) {
    return fault(path, "has " + std::to_string(size) + " bytes, but " + kManifestFile + " says " +
                           std::to_string(entry->second.size) + ": truncated or changed");
  }
  auto content = read_whole(path);
  if (!content.ok()) return content;
  const std::string_view pieces[] = {content.value()};
  if (digest_of(pieces) != entry->second) {
    return fault(path, std::string("its checksum differs from ") + kManifestFile + ": damaged or changed");
  }
  return content;
}

}  // namespace dtrun::worker
