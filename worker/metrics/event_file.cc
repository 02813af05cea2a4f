#include "worker/metrics/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "proto/tensorboard.pb.h"
#include "worker/base/error.h"
#include "worker/metrics/wall_time.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

// CRC-32C (Castagnoli), reflected, byte by byte: a record has some hundred bytes.
constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78U : crc >> 1;
    table[byte] = crc;
  }
  return table;
}

// As record_writer.cc masks it: sums of data that contain sums are weak.
std::uint32_t masked_crc(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

template <typename T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t at = 0; at < sizeof value; ++at)
    bytes.push_back(static_cast<char>(value >> (8 * at) & 0xFF));
  return bytes;
}

fs::path path_in(const fs::path& output_dir, std::int64_t generation) {
  const fs::path folder = output_dir / "runs";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw cannot_write("cannot create " + folder.string(), error.value());
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return folder / ("events.out.tfevents." + std::to_string(static_cast<std::int64_t>(wall_time())) + "." +
                   host.data() + "." + std::to_string(getpid()) + "." + std::to_string(generation));
}

int create(const fs::path& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw cannot_write("cannot create " + path.string(), errno);
  return fd;
}

}  // namespace

std::string tf_record(const std::string& bytes) {
  const std::string length = little_endian<std::uint64_t>(bytes.size());
  return length + little_endian(masked_crc(length)) + bytes + little_endian(masked_crc(bytes));
}

EventFile::EventFile(const fs::path& path, PatientFile::Notice notice)
    : file_(path, create(path), "point", std::move(notice)) {}

EventFile::EventFile(const fs::path& output_dir, std::int64_t resume_step, std::int64_t generation,
                     PatientFile::Notice notice)
    : EventFile(path_in(output_dir, generation), std::move(notice)) {
  tensorboard::Event version;
  version.set_wall_time(wall_time());
  version.set_file_version("brain.Event:2");
  // TensorBoard takes the first start of all for no restart, so each file has one.
  tensorboard::Event start;
  start.set_wall_time(wall_time());
  start.set_step(resume_step == 0 ? 0 : resume_step + 1);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  file_.append(tf_record(version.SerializeAsString()) + tf_record(start.SerializeAsString()));
}

void EventFile::add(std::int64_t step, double time, const std::vector<Scalar>& scalars) {
  tensorboard::Event event;
  event.set_wall_time(time);
  event.set_step(step);
  for (const Scalar& scalar : scalars) {
    tensorboard::Summary::Value* value = event.mutable_summary()->add_value();
    value->set_tag(scalar.tag);
    value->set_simple_value(static_cast<float>(scalar.value));
  }
  file_.append(tf_record(event.SerializeAsString()));
}

}  // namespace dtrun::worker
