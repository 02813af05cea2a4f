#include "worker/data/images/idx.h"

#include <algorithm>
#include <cstring>

#include "worker/data/gzip.h"
#include "worker/data/message.h"

namespace dtrun::worker {

namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::uint64_t kMostValues = std::uint64_t{1} << 36;

Status fault(const std::string& message) { return Status(kExitNoInput, message); }

// The content of a file, gzip or not, behind one interface for the parser.
class Content {
 public:
  explicit Content(Bytes file)
      : file_(file), gzip_(is_gzip(file) ? file : Bytes()), compressed_(is_gzip(file)) {}

  // As many bytes as there are, up to out.size().
  std::size_t read(std::span<std::uint8_t> out) {
    if (compressed_) return gzip_.read(out);
    const std::size_t size = std::min(out.size(), file_.size() - position_);
    if (size > 0) std::memcpy(out.data(), file_.data() + position_, size);
    position_ += size;
    return size;
  }

  // The reason of a short read.
  Status short_of(std::uint64_t have, std::uint64_t want) const {
    const std::string where = with_thousands(have) + " of " + with_thousands(want) + " bytes";
    if (!compressed_) return fault("file ends after " + where + ": truncated");
    if (!gzip_.fault().empty())
      return fault("gzip data is corrupt after " + where + " (" + gzip_.fault() + ")");
    if (gzip_.ended())
      return fault("the gzip content ends after " + where + ": truncated before compression");
    return fault("file ends within the gzip data, after " + where + " of its content: truncated");
  }

  // The header promises `total` bytes, more than most().
  Status too_small_for(std::uint64_t total, const std::string& product) const {
    if (!compressed_) return short_of(file_.size(), total);
    return fault("its header says " + product +
                 " values, more than gzip data of this size can hold: truncated or corrupt");
  }

  // The most content that the file can hold.
  std::uint64_t most() const { return file_.size() * (compressed_ ? kMaxGzipRatio : 1); }

  // Nothing may follow the array.
  Status check_end() {
    std::uint8_t next = 0;
    const bool more = read({&next, 1}) > 0;
    if (compressed_ && !gzip_.fault().empty()) {
      return fault("gzip data is corrupt at its end (" + gzip_.fault() + ")");
    }
    if (more) return fault("has content after the end of the array: not the file that its header says");
    if (!compressed_) return Status();
    if (!gzip_.ended()) return fault("file ends within the gzip trailer: truncated");
    // Tapes and archives pad with zeros, which gzip(1) ignores, too.
    const auto rest = file_.last(gzip_.unread());
    if (std::ranges::any_of(rest, [](std::uint8_t byte) { return byte != 0; })) {
      return fault(with_thousands(gzip_.unread()) + " bytes of garbage follow the gzip data");
    }
    return Status();
  }

 private:
  Bytes file_;
  GzipReader gzip_;
  bool compressed_;
  std::size_t position_ = 0;
};

std::uint32_t big_endian32(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 |
         bytes[3];
}

std::string hex(const std::uint8_t* bytes, std::size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    if (i > 0) text += ' ';
    text += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
  }
  return text;
}

// The first four bytes, for people.
std::string magic_of(int rank) {
  const std::uint8_t magic[4] = {0, 0, kUnsignedByte, static_cast<std::uint8_t>(rank)};
  return hex(magic, 4);
}

Status check_magic(const std::uint8_t (&magic)[4], IdxRank rank) {
  const bool right_type = magic[0] == 0 && magic[1] == 0 && magic[2] == kUnsignedByte;
  if (right_type && magic[3] >= rank.least && magic[3] <= rank.most) return Status();
  std::string why = "not an IDX file";
  if (magic[0] == 0 && magic[1] == 0) {
    why = magic[2] != kUnsignedByte ? "IDX with elements of another type than unsigned bytes"
          : magic[3] == 3           ? "an IDX file of images, not of labels"
          : magic[3] == 1           ? "an IDX file of labels, not of images"
                                    : "IDX with another number of dimensions";
  }
  const std::string wanted =
      magic_of(rank.least) + (rank.most > rank.least ? " to " + magic_of(rank.most) : "");
  return fault("begins with " + hex(magic, 4) + " where " + wanted + " is expected: " + why);
}

Result<std::vector<std::uint32_t>> read_dims(Content& content, IdxRank allowed) {
  std::size_t header = 4 + 4 * static_cast<std::size_t>(allowed.least);
  std::uint8_t magic[4];
  if (const std::size_t have = content.read(magic); have < sizeof magic)
    return content.short_of(have, header);
  RETURN_IF_ERROR(check_magic(magic, allowed));
  const int rank = magic[3];
  header = 4 + 4 * static_cast<std::size_t>(rank);
  std::vector<std::uint32_t> dims;
  for (int i = 0; i < rank; ++i) {
    std::uint8_t bytes[4];
    const std::size_t have = content.read(bytes);
    if (have < sizeof bytes) return content.short_of(4 + 4 * static_cast<std::size_t>(i) + have, header);
    dims.push_back(big_endian32(bytes));
  }
  return dims;
}

// The product of the dimensions, checked against what the file can hold before anything is allocated.
Result<std::uint64_t> plausible_count(const std::vector<std::uint32_t>& dims, const Content& content) {
  std::uint64_t count = 1;
  std::string product;
  for (std::uint32_t dim : dims) {
    product += (product.empty() ? "" : " x ") + with_thousands(dim);
    // `count` stops growing above kMostValues, so the product does not overflow.
    count = count > kMostValues / std::max<std::uint64_t>(dim, 1) ? kMostValues + 1 : count * dim;
  }
  if (count == 0) return fault("is empty: its header says " + product);
  if (count > kMostValues) return fault("its header says " + product + " values: corrupt");
  const std::uint64_t total = 4 + 4 * dims.size() + count;
  if (total > content.most()) return content.too_small_for(total, product);
  return count;
}

}  // namespace

Result<std::vector<std::uint32_t>> parse_idx_dims(Bytes beginning, IdxRank rank) {
  Content content(beginning);
  return read_dims(content, rank);
}

Result<IdxArray> parse_idx(Bytes file, IdxRank rank, const Room& room) {
  Content content(file);
  ASSIGN_OR_RETURN(const auto dims, read_dims(content, rank));
  ASSIGN_OR_RETURN(const auto count, plausible_count(dims, content));

  const std::uint64_t header = 4 + 4 * dims.size();
  const std::span<std::uint8_t> all = room(header + count);
  Content(file).read(all.first(header));
  const std::size_t have = content.read(all.subspan(header));
  if (have < count) return content.short_of(header + have, header + count);
  RETURN_IF_ERROR(content.check_end());
  return idx_array(all);
}

IdxArray idx_array(Bytes content) {
  const std::size_t rank = content[3];
  IdxArray array{.dims = {}, .values = content.subspan(4 + 4 * rank)};
  for (std::size_t i = 1; i <= rank; ++i) array.dims.push_back(big_endian32(&content[4 * i]));
  return array;
}

}  // namespace dtrun::worker
