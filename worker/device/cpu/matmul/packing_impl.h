// Of kernels_impl.h, whose rules hold here too: what a tile reads, and the copies of a matrix's columns
// (panels) and rows (strips) that have that form.
#pragma once

#include "worker/device/cpu/matmul/kernels.h"

namespace dtrun::worker::matmul::DTRUN_KERNELS {
namespace {

using Size = std::int64_t;

constexpr int kVector = DTRUN_VECTOR;
constexpr int kRows = DTRUN_ROWS;
constexpr int kColumns = 2 * kVector;

constexpr bool kPairs = DTRUN_PAIRS;
constexpr Size kInWord = kPairs ? 2 : 1;  // values along k that a tile reads as one
inline Size words(Size k) { return (k + kInWord - 1) / kInWord; }

constexpr Size kLine = 16;                                              // floats of a line of the cache
constexpr Size kStripStep = (kRows + kVector - 1) / kVector * kVector;  // of rows side by side: whole vectors
constexpr Size kStripFloats = 300 * 1024;  // of all strips that are kept at a time

using Vector = float __attribute__((vector_size(4 * kVector)));

inline Vector load(const float* from) {
  Vector value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
inline void store(float* to, Vector value) { __builtin_memcpy(to, &value, sizeof value); }
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

// The rows of the next tile: the last two share what is left, since a tile of few rows waits for its sums.
inline int tile_rows(Size left) {
  const bool whole = left >= 2 * kRows || left <= kRows;
  return static_cast<int>(whole ? smaller(left, kRows) : (left + 1) / 2);
}

// ---- words

// `low` are the values in the lower halves of the words, or of the first half of the words.
#if DTRUN_PAIRS
using Halves = std::uint16_t __attribute__((vector_size(4 * kVector)));
inline Vector rounded(Vector low, Vector high) {
  Vector to;
  DTRUN_ROUND(low, high, to);
  return to;
}
template <int... Half>
inline Vector interleaved(Indices<Half...>, Halves halves) {
  return reinterpret_cast<Vector>(
      __builtin_shufflevector(halves, halves, ((Half % 2 != 0 ? kVector : 0) + Half / 2)...));
}
#endif

// The first values of a line, of which `left` exist; zeros follow them.
inline Vector words_along(const float* from, Size left) {
  constexpr Size kValues = kVector * kInWord;
  float some[kValues];
  if (left < kValues) {
    for (Size i = 0; i < kValues; ++i) some[i] = i < left ? from[i] : 0;
    from = some;
  }
#if DTRUN_PAIRS
  return rounded(load(from), load(from + kVector));
#else
  return load(from);
#endif
}

// Those of neighbouring lines, from `line` on: `second` has the values that follow in k; null: none do.
inline Vector words_across(const float* first, const float* second, Size line) {
#if DTRUN_PAIRS
  const Vector high = second != nullptr ? load(second + line) : Vector{};
  return interleaved(indices<2 * kVector>(), reinterpret_cast<Halves>(rounded(load(first + line), high)));
#else
  return static_cast<void>(second), load(first + line);
#endif
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
  constexpr Size kStep = kVector * kInWord;
  for (Size done = 0; done < k; done += kStep, panel += kVector * kColumns) {
    Vector block[kVector];
#pragma GCC unroll 16
    for (int i = 0; i < kVector; ++i)
      block[i] = i < count ? words_along(columns.at + i * columns.line_stride + done, k - done) : Vector{};
    transpose(block);
    const Size there = smaller(kVector, words(k - done));
    if (there == kVector)
#pragma GCC unroll 16
      for (int i = 0; i < kVector; ++i) store(panel + i * kColumns, block[i]);
    else
      for (int i = 0; i < there; ++i) store(panel + i * kColumns, block[i]);
  }
}

// The first `count` of the columns, at most kColumns, as a panel; zeros follow them.
void pack(const Lines& columns, Size k, Size count, float* panel) {
  if (columns.step == 1) {
    pack_transposed(columns, k, count, panel);
    pack_transposed(columns.from(count > kVector ? kVector : 0, 0), k, count - kVector, panel + kVector);
    return;
  }
  float some[kInWord][kColumns] = {};
  for (Size i = 0; i < k; i += kInWord, panel += kColumns) {
    const float *first = columns.at + i * columns.step, *second = i + 1 < k ? first + columns.step : nullptr;
    if (count < kColumns) {
      for (Size j = 0; j < smaller(kInWord, k - i); ++j)
        for (Size column = 0; column < count; ++column) some[j][column] = first[j * columns.step + column];
      first = some[0], second = second != nullptr ? some[kInWord - 1] : nullptr;
    }
    store(panel, words_across(first, second, 0)),
        store(panel + kVector, words_across(first, second, kVector));
  }
}

// A block of k, from `begin` on, of the columns of a matmul: lines of a matrix, or gathered ones.
struct Columns {
  Lines lines;
  const Gathered* gathered;
  Size begin;
};

using Lanes = std::int32_t __attribute__((vector_size(4 * kVector)));

// As pack(). A vector whose columns belong to two runs is made of a load from either: the second one begins
// that far in front of its run. Shorter runs are copied as whole vectors, in the order of the columns and
// then of k, so that what one has too much is overwritten by the next; a last one writes up to kVector floats
// behind the panel.
void pack_gathered(const Columns& columns, Size first, Size k, Size count, float* panel) {
  const Gathered& g = *columns.gathered;
  const std::int32_t* const steps = g.steps + columns.begin;
  Size froms[kColumns], tos[kColumns], firsts[2] = {}, seconds[2] = {};
  Lanes second[2] = {};
  int pieces = 0;
  bool two = true;
  Size run = first / g.run, within = first % g.run;
  for (Size to = 0; to < count; ++run, within = 0) {
    const Size from = g.runs[run] + within, length = smaller(g.run - within, count - to);
    for (Size i = 0; i < length; i += kVector) froms[pieces] = from + i, tos[pieces++] = to + i;
    for (Size vector = to / kVector; vector * kVector < to + length; ++vector) {
      const Size begin = vector * kVector, there = from + begin - to;
      if (begin >= to) {
        firsts[vector] = seconds[vector] = there;
      } else if (there != firsts[vector]) {
        two = two && firsts[vector] == seconds[vector];
        seconds[vector] = there;
        for (Size lane = to - begin; lane < kVector; ++lane) second[vector][lane] = -1;
      }
    }
    to += length;
  }
  if (two) {
    const Size a = firsts[0], b = seconds[0], c = firsts[1], d = seconds[1];
    const Lanes left = second[0], right = second[1];
    const bool one = a == b && c == d;
    const auto step = [&](Size i) { return i < k ? g.at + steps[i] : nullptr; };
    for (Size i = 0; one && i < k; i += kInWord, panel += kColumns) {
      const float *const from = step(i), *const next = step(i + 1);
      store(panel, words_across(from, next, a));
      store(panel + kVector, words_across(from, next, c));
    }
    for (Size i = 0; !one && i < k; i += kInWord, panel += kColumns) {
      const float *const from = step(i), *const next = step(i + 1);
      store(panel, left ? words_across(from, next, b) : words_across(from, next, a));
      store(panel + kVector, right ? words_across(from, next, d) : words_across(from, next, c));
    }
    return;
  }
  float some[kInWord][kColumns + kVector] = {};
  for (Size i = 0; i < k; i += kInWord, panel += kColumns) {
    for (Size j = 0; j < smaller(kInWord, k - i); ++j) {
      const float* const from = g.at + steps[i + j];
      float* const to = kPairs ? some[j] : panel;
      for (int piece = 0; piece < pieces; ++piece) store(to + tos[piece], load(from + froms[piece]));
    }
    for (Size vector = 0; kPairs && vector < kColumns; vector += kVector)
      store(panel + vector, words_across(some[0], i + 1 < k ? some[kInWord - 1] : nullptr, vector));
  }
}

// The k values of a line as words.
inline void copy_words(const float* from, Size k, float* to) {
  if constexpr (!kPairs) {
    __builtin_memcpy(to, from, k * sizeof(float));
    return;
  }
  constexpr Size kStep = kVector * kInWord;
  for (; k >= kStep; k -= kStep, from += kStep, to += kVector) store(to, words_along(from, k));
  if (k == 0) return;
  const Vector last = words_along(from, k);
  __builtin_memcpy(to, &last, words(k) * sizeof(float));
}

// ---- strips

// Copies of tiles' rows, `depth` words of each, in the form that the rows have in memory.
struct Strips {
  float* at;
  Size stride, step;  // of a strip's rows, and of a row's words
  Size floats;        // of a strip: an odd number of lines, so neighbours lie in other sets of the cache
  Size at_once;       // that are copied: more if neighbours in memory belong to different rows

  Strips(float* memory, const Lines& rows, Size depth) : at(memory) {
    const bool along = rows.step == 1;
    const Size lines = (depth + kLine - 1) / kLine;
    stride = along ? (lines | 1) * kLine : 1;
    step = along ? 1 : kStripStep;
    floats = ((along ? kRows * stride : kStripStep * lines * kLine) / kLine | 1) * kLine;
    at_once = along ? 4 : 8;
  }
  bool hold(Size rows) const { return rows <= kStripFloats / floats * kRows; }
  float* strip(Size number) const { return at + number * floats; }
};

// The next strips of `left` rows, at most strips.at_once, into those from `strip` on. If neighbours in memory
// belong to different rows it goes through all of them at once, so that each line of the cache is read once.
void pack_strips(const Lines& rows, Size left, Size k, const Strips& strips, float* strip) {
  if (rows.step == 1) {
    for (Size row = 0, number = 0; row < left && number < strips.at_once; ++number, strip += strips.floats) {
      const int height = tile_rows(left - row);
      for (int i = 0; i < height; ++i, ++row)
        copy_words(rows.at + row * rows.line_stride, k, strip + i * strips.stride);
    }
    return;
  }
  float some[kInWord][kStripStep] = {};
  for (Size i = 0; i < k; i += kInWord, strip += kStripStep) {
    float* to = strip;
    for (Size row = 0, number = 0; row < left && number < strips.at_once; ++number, to += strips.floats) {
      const int height = tile_rows(left - row);
      const float *first = rows.at + i * rows.step + row, *second = i + 1 < k ? first + rows.step : nullptr;
      if (row + kStripStep > left) {
        for (Size j = 0; j < smaller(kInWord, k - i); ++j)
          for (int l = 0; l < height; ++l) some[j][l] = first[j * rows.step + l];
        first = some[0], second = second != nullptr ? some[kInWord - 1] : nullptr;
      }
      for (int j = 0; j < kStripStep; j += kVector) store(to + j, words_across(first, second, j));
      row += height;
    }
  }
}

}  // namespace
}  // namespace dtrun::worker::matmul::DTRUN_KERNELS
