// A small data set in the files of Fashion-MNIST: each class is bright in a place of its own, under noise.
#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace dtrun::test {

inline void write_idx(const std::filesystem::path& directory, const std::string& images,
                      const std::string& labels, int count, unsigned seed, int side = 28) {
  std::mt19937 random(seed);
  auto big_endian = [](std::ofstream& out, int value) {
    for (int shift = 24; shift >= 0; shift -= 8) out.put(static_cast<char>(value >> shift));
  };
  std::ofstream x(directory / images, std::ios::binary), y(directory / labels, std::ios::binary);
  for (const int value : {0x803, count, side, side}) big_endian(x, value);
  for (const int value : {0x801, count}) big_endian(y, value);
  for (int sample = 0; sample < count; ++sample) {
    const int label = static_cast<int>(random() % 10);
    y.put(static_cast<char>(label));
    for (int pixel = 0; pixel < side * side; ++pixel) {
      const bool bright = pixel / side / 6 == label / 5 * 2 && pixel % side / 5 == label % 5;
      x.put(static_cast<char>(random() % 100 + (bright ? 150 : 0)));
    }
  }
}

}  // namespace dtrun::test
