// The matrices of a program that are quantized, as rows of a matmul's output channels. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/model/program.h"
#include "worker/quantize/blocks.h"

namespace dtrun::worker {

// The weights of a linear layer or a convolution. Blocks lie along the inputs of one output.
struct QuantizedMatrix {
  std::size_t parameter = 0;          // its index
  std::size_t rows = 0, columns = 0;  // outputs, inputs
  bool in_first = false;              // stored as [columns, rows]
};

std::vector<QuantizedMatrix> quantized_matrices(const Program& program);

// The matrix, row after row. flat: [program.size].
std::vector<float> rows_of(const Program& program, const QuantizedMatrix& matrix, const float* flat);

// The parameters as a quantized model computes with them: `out` gets `flat`, its matrices quantized and
// dequantized. Both [program.size].
void round_matrices(const Program& program, Quantization how, const float* flat, float* out);

}  // namespace dtrun::worker
