#include "worker/quantize/matrices.h"

#include <algorithm>
#include <optional>

namespace dtrun::worker {
namespace {

std::optional<QuantizedMatrix> matrix_of(const Op& op) {
  if (const auto* const linear = std::get_if<Linear>(&op))
    return QuantizedMatrix{.parameter = linear->weight,
                           .rows = static_cast<std::size_t>(linear->out_features),
                           .columns = static_cast<std::size_t>(linear->in_features),
                           .in_first = linear->in_first};
  if (const auto* const conv = std::get_if<Conv2d>(&op))
    return QuantizedMatrix{.parameter = conv->weight,
                           .rows = static_cast<std::size_t>(conv->out_channels),
                           .columns = std::size_t(conv->in_channels) * conv->kernel * conv->kernel};
  return std::nullopt;
}

// One row or block at a time: columns lie a stride apart in a matrix that is stored the other way round.
struct Strides {
  std::size_t row, column;
};
Strides strides_of(const QuantizedMatrix& m) {
  return m.in_first ? Strides{1, m.rows} : Strides{m.columns, 1};
}

}  // namespace

std::vector<QuantizedMatrix> quantized_matrices(const Program& program) {
  std::vector<QuantizedMatrix> all;
  for (const Node& node : program.nodes)
    if (const auto matrix = matrix_of(node.op)) all.push_back(*matrix);
  return all;
}

std::vector<float> rows_of(const Program& program, const QuantizedMatrix& matrix, const float* flat) {
  const float* const from = flat + program.parameters[matrix.parameter].offset;
  const Strides strides = strides_of(matrix);
  std::vector<float> rows(matrix.rows * matrix.columns);
  for (std::size_t row = 0; row < matrix.rows; ++row)
    for (std::size_t column = 0; column < matrix.columns; ++column)
      rows[row * matrix.columns + column] = from[row * strides.row + column * strides.column];
  return rows;
}

void round_matrices(const Program& program, Quantization how, const float* flat, float* out) {
  std::copy_n(flat, program.size, out);
  for (const QuantizedMatrix& matrix : quantized_matrices(program)) {
    std::vector<float> rows = rows_of(program, matrix, flat);
    float* const to = out + program.parameters[matrix.parameter].offset;
    const Strides strides = strides_of(matrix);
    for (std::size_t row = 0; row < matrix.rows; ++row)
      for (std::size_t first = 0; first < matrix.columns; first += kQuantizedBlock) {
        const std::size_t count = std::min(kQuantizedBlock, matrix.columns - first);
        float* const steps = rows.data() + row * matrix.columns + first;
        const float scale = quantize_block(how, count, steps, steps);
        for (std::size_t i = 0; i < count; ++i)
          to[row * strides.row + (first + i) * strides.column] = steps[i] * scale;
      }
  }
}

}  // namespace dtrun::worker
