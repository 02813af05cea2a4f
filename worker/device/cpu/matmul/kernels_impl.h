// The matmuls of fp32 behind matmul.h, for the instruction set of the file that includes this, as Goto and
// van de Geijn cut them ("Anatomy of High-Performance Matrix Multiplication", 2008): a tile of c, kRows x
// kColumns, stays in registers while a block of k goes by. A step of it reads kColumns neighbours of the one
// matrix as vectors, and spreads kRows values of the other.
//
// A block's columns lie in panels, [k][kColumns], copied unless the matrix has that form and few tiles read
// it; a matrix whose k is contiguous is transposed on the way. Rows are read where they lie, or from strips,
// copies of a tile's rows: if many panels read them, or if their distance would have them share few sets of
// the cache.
//
// Includes nothing that has inline functions with external linkage: a copy of one compiled for AVX-512 must
// not become the program's only copy. The including file defines DTRUN_KERNELS (a namespace),
// DTRUN_KERNELS_NAME, DTRUN_VECTOR (floats in a vector register), DTRUN_ROWS (2 * DTRUN_ROWS + 3 registers
// are in use) and DTRUN_ACCUMULATE(a, b, sum): sum += a * b of vectors, rounded once.
#include "worker/device/cpu/matmul/kernels.h"

namespace dtrun::worker::matmul::DTRUN_KERNELS {
namespace {

using Size = std::int64_t;

constexpr int kVector = DTRUN_VECTOR;
constexpr int kRows = DTRUN_ROWS;
constexpr int kColumns = 2 * kVector;

constexpr int kPanels = 4;                  // at a time: they stay in the second-level cache
constexpr Size kStrips = 32;                // kept at a time
constexpr Size kStripStride = kBlock + 16;  // of rows in a strip: neighbours lie in other sets of the cache
constexpr Size kStripStep = (kRows + kVector - 1) / kVector * kVector;  // of rows side by side: whole vectors
constexpr Size kStripFloats =  // strips are in other sets than their neighbours, too
    (kStripStep * kBlock > kRows * kStripStride ? kStripStep * kBlock : kRows * kStripStride) + 112;
constexpr Size kFewRows = 5 * kRows;             // too few to be worth a copy of the columns
constexpr Size kSameSet = 4096 / sizeof(float);  // a distance with which all rows share one set

constexpr Size kPanelFloats = kBlock * kColumns;
constexpr Size kTileFloats = kRows * kColumns;
constexpr Size kScratch = kTileFloats + kPanels * kPanelFloats + kStrips * kStripFloats;

using Vector = float __attribute__((vector_size(4 * kVector)));

inline Vector load(const float* from) {
  Vector value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
inline void store(float* to, Vector value) { __builtin_memcpy(to, &value, sizeof value); }
[[gnu::always_inline]] inline Vector multiply_add(Vector a, Vector b, Vector sum) {
  DTRUN_ACCUMULATE(a, b, sum);
  return sum;
}
inline Size smaller(Size a, Size b) { return a < b ? a : b; }

template <int...>
struct Indices {};
template <int Count, int... Index>
constexpr auto indices(Indices<Index...> = {}) {
  if constexpr (sizeof...(Index) == Count)
    return Indices<Index...>{};
  else
    return indices<Count>(Indices<Index..., sizeof...(Index)>{});
}

// Lines of a matrix along k: element (line, k) is at[line * line_stride + k * step].
struct Lines {
  const float* at;
  Size line_stride;
  Size step;  // 1, or line_stride is

  Lines from(Size line, Size k) const { return {at + line * line_stride + k * step, line_stride, step}; }
};

// ---- tiles

// Scalars, not structs: GCC hands a struct over in memory, in pieces that are waited for when they are read.
#define DTRUN_TILE                                                                                   \
  Size k, const float *rows, Size row_stride, Size row_step, const float *columns, Size column_step, \
      float *out, Size out_stride, float alpha, const float *base, Size base_stride

// Indices are constants from the beginning, so that the sums are registers and no array.
template <int... Row>
[[gnu::always_inline]] inline void tile(Indices<Row...>, DTRUN_TILE) {
  Vector left[sizeof...(Row)] = {}, right[sizeof...(Row)] = {};
  ((__builtin_prefetch(out + Row * out_stride, 1),
    __builtin_prefetch(out + Row * out_stride + kColumns - 1, 1)),
   ...);
  for (; k > 0; --k, rows += row_step, columns += column_step) {
    const Vector l = load(columns), r = load(columns + kVector);
    Vector value;
    ((value = rows[Row * row_stride] - Vector{},  // x - 0 is x, also -0
      left[Row] = multiply_add(value, l, left[Row]), right[Row] = multiply_add(value, r, right[Row])),
     ...);
  }
  if (base != nullptr)
    ((store(out + Row * out_stride, load(base + Row * base_stride) + left[Row] * alpha),
      store(out + Row * out_stride + kVector, load(base + Row * base_stride + kVector) + right[Row] * alpha)),
     ...);
  else
    ((store(out + Row * out_stride, left[Row] * alpha),
      store(out + Row * out_stride + kVector, right[Row] * alpha)),
     ...);
}
template <int Rows>
[[gnu::noinline]] void tile_of(DTRUN_TILE) {
  tile(indices<Rows>(), k, rows, row_stride, row_step, columns, column_step, out, out_stride, alpha, base,
       base_stride);
}
using Tile = void (*)(DTRUN_TILE);
#undef DTRUN_TILE

struct Tiles {
  Tile of[kRows];  // of 1, 2, … rows
};
template <int... Row>
constexpr Tiles tiles(Indices<Row...>) {
  return {{tile_of<Row + 1>...}};
}
constexpr Tiles kTiles = tiles(indices<kRows>());

// The rows of the next tile: the last two share what is left, since a tile of few rows waits for its sums.
inline int tile_rows(Size left) {
  const bool whole = left >= 2 * kRows || left <= kRows;
  return static_cast<int>(whole ? smaller(left, kRows) : (left + 1) / 2);
}

// ---- panels

// The off-diagonal Distance x Distance blocks of a and b change places.
template <int Distance, int... Lane>
inline void exchange(Indices<Lane...>, Vector& a, Vector& b) {
  const Vector low = __builtin_shufflevector(a, b, ((Lane & Distance) ? kVector + Lane - Distance : Lane)...);
  const Vector high =
      __builtin_shufflevector(a, b, ((Lane & Distance) ? kVector + Lane : Lane + Distance)...);
  a = low, b = high;
}
template <int Distance>
inline void exchange_all(Vector* rows) {
#pragma GCC unroll 16
  for (int i = 0; i < kVector; ++i)
    if (!(i & Distance)) exchange<Distance>(indices<kVector>(), rows[i], rows[i + Distance]);
}
inline void transpose(Vector* rows) {
  if constexpr (kVector > 8) exchange_all<8>(rows);
  if constexpr (kVector > 4) exchange_all<4>(rows);
  exchange_all<2>(rows), exchange_all<1>(rows);
}

// kVector columns, whose k is contiguous; of them `count` exist, the others are zero.
void pack_transposed(const Lines& columns, Size k, Size count, float* panel) {
  Size done = 0;
  for (; done + kVector <= k; done += kVector) {
    Vector block[kVector];
#pragma GCC unroll 16
    for (int i = 0; i < kVector; ++i)
      block[i] = i < count ? load(columns.at + i * columns.line_stride + done) : Vector{};
    transpose(block);
#pragma GCC unroll 16
    for (int i = 0; i < kVector; ++i) store(panel + (done + i) * kColumns, block[i]);
  }
  for (; done < k; ++done)
    for (int i = 0; i < kVector; ++i)
      panel[done * kColumns + i] = i < count ? columns.at[i * columns.line_stride + done] : 0;
}

// The first `count` of the columns, at most kColumns, as a panel; zeros follow them.
void pack(const Lines& columns, Size k, Size count, float* panel) {
  if (columns.step == 1) {
    pack_transposed(columns, k, count, panel);
    pack_transposed(columns.from(count > kVector ? kVector : 0, 0), k, count - kVector, panel + kVector);
    return;
  }
  for (Size i = 0; i < k; ++i) {
    const float* const from = columns.at + i * columns.step;
    float* const to = panel + i * kColumns;
    if (count == kColumns)
      store(to, load(from)), store(to + kVector, load(from + kVector));
    else
      for (int column = 0; column < kColumns; ++column) to[column] = column < count ? from[column] : 0;
  }
}

// ---- strips

// A strip of a tile's rows, of kStripFloats.
inline Lines strip_of(const Lines& rows, const float* strip) {
  return rows.step == 1 ? Lines{strip, kStripStride, 1} : Lines{strip, 1, kStripStep};
}

// The strips of `count` rows, at most kStrips * kRows; `readable` rows can be read. If neighbours in memory
// belong to different rows it goes through all strips at once, so that each line of the cache is read once.
void pack_strips(const Lines& rows, Size count, Size readable, Size k, float* strips) {
  if (rows.step == 1) {
    for (Size row = 0; row < count; strips += kStripFloats) {
      const int height = tile_rows(count - row);
      for (int i = 0; i < height; ++i, ++row)
        __builtin_memcpy(strips + i * kStripStride, rows.at + row * rows.line_stride, k * sizeof(float));
    }
    return;
  }
  for (Size i = 0; i < k; ++i) {
    const float* const from = rows.at + i * rows.step;
    float* to = strips + i * kStripStep;
    for (Size row = 0; row < count; to += kStripFloats) {
      const int height = tile_rows(count - row);
      if (row + kStripStep <= readable)
        for (int j = 0; j < kStripStep; j += kVector) store(to + j, load(from + row + j));
      else
        for (int j = 0; j < height; ++j) to[j] = from[row + j];
      row += height;
    }
  }
}

// ---- a matmul

// Element (row, column) of c is at[row * row_stride + column * column_stride]; one of the strides is 1. The
// sum is added to that of `base`: c's own, or the bias', whose stride is 1 where c's is, and else 0.
struct Out {
  float* at;
  Size row_stride, column_stride;
  float alpha;
  const float* base;  // null: nothing is added to
  Size base_row_stride, base_column_stride;

  Out from(Size row, Size column) const {
    Out there = *this;
    there.at += row * row_stride + column * column_stride;
    if (base != nullptr) there.base += row * base_row_stride + column * base_column_stride;
    return there;
  }
  Out transposed() const {
    return {at, column_stride, row_stride, alpha, base, base_column_stride, base_row_stride};
  }
  Out added_to() const { return {at, row_stride, column_stride, alpha, at, row_stride, column_stride}; }
};

// Takes over what of a tile in memory exists in c.
void put(const float* tile, int rows, Size columns, const Out& out) {
  const bool across = out.row_stride == 1;  // c's neighbours are those of a tile's column
  const Size lines = across ? columns : rows, length = across ? rows : columns;
  const Size line_step = across ? 1 : kColumns, step = across ? kColumns : 1;
  const Size out_stride = across ? out.column_stride : out.row_stride;
  const Size base_stride = across ? out.base_column_stride : out.base_row_stride;
  for (Size line = 0; line < lines; ++line) {
    const float* const from = tile + line * line_step;
    const float* const base = out.base + line * base_stride;
    float* const to = out.at + line * out_stride;
    if (out.base != nullptr)
      for (Size i = 0; i < length; ++i) to[i] = base[i] + from[i * step];
    else
      for (Size i = 0; i < length; ++i) to[i] = from[i * step];
  }
}

struct Panel {
  const float* at;
  Size step;
  Size columns;  // that exist
};

void compute_tile(const Lines& rows, int count, const Panel& panel, Size k, const Out& out, float* scratch) {
  const Tile compute = kTiles.of[count - 1];
  if (out.column_stride == 1 && panel.columns == kColumns) {
    compute(k, rows.at, rows.line_stride, rows.step, panel.at, panel.step, out.at, out.row_stride, out.alpha,
            out.base, out.base_row_stride);
  } else {
    compute(k, rows.at, rows.line_stride, rows.step, panel.at, panel.step, scratch, kColumns, out.alpha,
            nullptr, 0);
    put(scratch, count, panel.columns, out);
  }
}

// One block of k: c of m x n.
void multiply_block(const Lines& rows, Size m, const Lines& columns, Size n, Size k, const Out& out,
                    float* scratch) {
  float* const panels = scratch + kTileFloats;
  float* const strips = panels + kPanels * kPanelFloats;
  const bool same_set = (rows.step == 1 ? rows.line_stride : rows.step) % kSameSet == 0;
  const bool copy_rows = n > (same_set ? 1 : rows.step == 1 ? n : kPanels) * kColumns;
  for (Size first_row = 0; first_row < m; first_row += kStrips * kRows) {
    const Size end_row = smaller(m, first_row + kStrips * kRows);
    if (copy_rows) pack_strips(rows.from(first_row, 0), end_row - first_row, m - first_row, k, strips);
    for (Size first = 0; first < n; first += kPanels * kColumns) {
      Panel group[kPanels];
      Size count = 0;
      for (Size column = first; column < n && count < kPanels; column += kColumns, ++count) {
        const Lines here = columns.from(column, 0);
        const Size there = smaller(kColumns, n - column);
        float* const copy = panels + count * kPanelFloats;
        const bool in_place = here.line_stride == 1 && here.step != 1 && there == kColumns && m <= kFewRows;
        if (!in_place) pack(here, k, there, copy);
        group[count] = in_place ? Panel{here.at, here.step, there} : Panel{copy, kColumns, there};
      }
      const float* strip = strips;
      for (Size row = first_row; row < end_row; strip += kStripFloats) {
        const int height = tile_rows(end_row - row);
        const Lines here = copy_rows ? strip_of(rows, strip) : rows.from(row, 0);
        for (Size i = 0; i < count; ++i)
          compute_tile(here, height, group[i], k, out.from(row, first + i * kColumns), scratch);
        row += height;
      }
    }
  }
}

void multiply_lines(const Lines& rows, Size m, const Lines& columns, Size n, Size k, Out out,
                    float* scratch) {
  const Size blocks = k <= kBlock ? 1 : (k + kBlock - 1) / kBlock;
  for (Size block = 0, begin = 0; block < blocks; ++block, out = out.added_to()) {
    const Size size = k / blocks + (block < k % blocks ? 1 : 0);
    multiply_block(rows.from(0, begin), m, columns.from(0, begin), n, size, out, scratch);
    begin += size;
  }
}

// Which of the matrices has the panels makes no difference to the bits. Columns whose k is contiguous are
// transposed, about a tenth of a nanosecond for each value; c^T is as good if that costs more than its
// elements, which then go through a tile in memory.
void multiply(const Matmul<float>& p, float* scratch) {
  const Lines a{p.a, p.a_transposed ? 1 : p.a_stride, p.a_transposed ? p.a_stride : 1};
  const Lines b{p.b, p.b_transposed ? p.b_stride : 1, p.b_transposed ? 1 : p.b_stride};
  const Out out{p.c, p.c_stride, 1, p.alpha, p.bias, 0, 1};
  const Out to = p.beta != 0 ? out.added_to() : out;
  const bool exchanged =
      p.b_transposed && !p.a_transposed && p.m >= kVector / 2 && p.n * p.k > p.m * p.k + 4 * p.m * p.n;
  if (exchanged)
    multiply_lines(b, p.n, a, p.m, p.k, to.transposed(), scratch);
  else
    multiply_lines(a, p.m, b, p.n, p.k, to, scratch);
}

}  // namespace
}  // namespace dtrun::worker::matmul::DTRUN_KERNELS

namespace dtrun::worker {

template <>
const matmul::Kernels Copies<matmul::Kernels>::DTRUN_KERNELS = {.instruction_set = DTRUN_KERNELS_NAME,
                                                                .scratch = matmul::DTRUN_KERNELS::kScratch,
                                                                .multiply = matmul::DTRUN_KERNELS::multiply};

}  // namespace dtrun::worker
