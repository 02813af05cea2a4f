// The matmuls of fp32 behind matmul.h, for the instruction set of the file that includes this, as Goto and
// van de Geijn cut them ("Anatomy of High-Performance Matrix Multiplication", 2008): a tile of c, kRows x
// kColumns, stays in registers while a block of k goes by. A step of it reads kColumns neighbours of the one
// matrix as vectors, and spreads kRows values of the other.
//
// A block's columns lie in panels, [k][kColumns], copied unless the matrix has that form and few tiles read
// it; a matrix whose k is contiguous is transposed on the way. Rows are read where they lie, or from strips,
// copies of a tile's rows: if neighbours in memory belong to different ones and many panels read them, or if
// their distance would have them share few sets of the cache. Meanwhile tiles ask for the memory that is read
// or copied next.
//
// With DTRUN_PAIRS the values are rounded to bf16 when they are copied, so all rows and columns are. What a
// tile reads in the place of a float is then a word: two values, neighbours along k, the first one in the
// lower half. An odd k has a zero behind it.
//
// Includes nothing that has inline functions with external linkage: a copy of one compiled for AVX-512 must
// not become the program's only copy. The including file defines DTRUN_KERNELS (a namespace),
// DTRUN_KERNELS_NAME, DTRUN_VECTOR (floats in a vector register), DTRUN_ROWS (2 * DTRUN_ROWS + 3 registers
// are in use), DTRUN_PAIRS (0 or 1) and DTRUN_ACCUMULATE(a, b, sum): sum += a * b of vectors, rounded once;
// of words the sum of both products. With pairs also DTRUN_ROUND(low, high, to), which makes 2 * DTRUN_VECTOR
// values of bf16 of two vectors of floats.
#include "worker/device/cpu/matmul/packing_impl.h"

namespace dtrun::worker::matmul::DTRUN_KERNELS {
namespace {

constexpr int kPanels = 8;            // at a time: they stay in the second-level cache
constexpr int kPanelsOfFew = 2;       // … and if each serves few rows: the next are asked for early
constexpr Size kFewRows = 5 * kRows;  // too few to be worth a copy of the columns
constexpr Size kSomeRows = 256;       // too few for more than kPanelsOfFew
constexpr Size kFewPanels = 4;        // too few to be worth a copy of the rows
constexpr Size kSameSet = 4096 / sizeof(float);  // a distance with which all rows share one set

constexpr Size kPanelFloats = kBlock * kColumns;
constexpr Size kTileFloats = kRows * kColumns;
constexpr Size kScratch = kTileFloats + kPanels * kPanelFloats + kVector + kStripFloats + kStripStep;

[[gnu::always_inline]] inline Vector multiply_add(Vector a, Vector b, Vector sum) {
  DTRUN_ACCUMULATE(a, b, sum);
  return sum;
}

// ---- memory that is needed soon

// Lines of the cache that tiles ask for while they compute, in the order of memory: what is read next comes
// from far away, and a copy of it would wait for each line.
class Ahead {
 public:
  Ahead() = default;  // none
  // `lines` of `from`, of `k` values each.
  Ahead(const Lines& from, Size lines, Size k) : at_(from.at) {
    const bool along = from.step == 1;
    run_ = ((along ? k : lines) + kLine - 1) / kLine;
    left_ = run_ * (along ? lines : k);
    next_run_ = (along ? from.line_stride : from.step) - run_ * kLine;
  }
  bool done() const { return left_ == 0; }
  [[gnu::always_inline]] void ask() {
    Size left = left_;
    asm("" : "+r"(left));  // or a tile has a copy of its loop for when none is left
    if (left == 0) return;
    __builtin_prefetch(at_, 0, 2);
    left_ = left - 1, ++asked_, at_ += kLine;
    if (asked_ == run_) at_ += next_run_, asked_ = 0;
  }

 private:
  const float* at_ = nullptr;
  Size run_ = 0, next_run_ = 0;  // lines next to each other, and floats from there to the next ones
  Size asked_ = 0;               // of the run
  Size left_ = 0;
};

// ---- tiles

// Scalars, not structs: GCC hands a struct over in memory, in pieces that are waited for when they are read.
#define DTRUN_TILE                                                                                   \
  Size k, const float *rows, Size row_stride, Size row_step, const float *columns, Size column_step, \
      float *out, Size out_stride, float alpha, const float *base, Size base_stride, Ahead *ahead

// Indices are constants from the beginning, so that the sums are registers and no array. Each row is a
// register and a constant away from every fifth one's: the compiler is kept from taking a register for each.
template <int... Row>
[[gnu::always_inline]] inline void tile(Indices<Row...>, DTRUN_TILE) {
  constexpr Size kSteps = 4;  // of k, for each line of what is read next
  Vector left[sizeof...(Row)] = {}, right[sizeof...(Row)] = {};
  const float *first = rows, *fifth = rows + 5 * row_stride, *tenth = rows + 10 * row_stride;
  Size three = 3 * row_stride;
  asm("" : "+r"(first));
  asm("" : "+r"(fifth));
  asm("" : "+r"(tenth));
  asm("" : "+r"(three));
  const auto step = [&]() __attribute__((always_inline)) {
    const Vector l = load(columns), r = load(columns + kVector);
    Vector value;
    ((value = (Row < 5    ? first
               : Row < 10 ? fifth
                          : tenth)[Row % 5 == 3 ? three : Row % 5 * row_stride] -
              Vector{},  // x - 0 is x, also -0
      left[Row] = multiply_add(value, l, left[Row]), right[Row] = multiply_add(value, r, right[Row])),
     ...);
    first += row_step, fifth += row_step, tenth += row_step, columns += column_step;
  };
  // Lines of c and of what is read next, one by one: many at once would keep the columns waiting.
  const float *to = out, *const end = out + sizeof...(Row) * out_stride;
  for (; k >= kSteps; k -= kSteps) {
    if (to != end) {
      __builtin_prefetch(to, 1), __builtin_prefetch(to + kColumns - 1, 1);
      to += out_stride;
    }
    ahead->ask();
#pragma GCC unroll 1
    for (Size i = 0; i < kSteps; ++i) step();
  }
#pragma GCC unroll 1
  for (; k > 0; --k) step();
  const auto put = [&](Vector l, Vector r) __attribute__((always_inline)) {
    store(out, l), store(out + kVector, r);
    out += out_stride;
  };
  if (base != nullptr)
    ((put(load(base) + left[Row] * alpha, load(base + kVector) + right[Row] * alpha), base += base_stride),
     ...);
  else
    (put(left[Row] * alpha, right[Row] * alpha), ...);
}
template <int Rows>
[[gnu::noinline]] void tile_of(DTRUN_TILE) {
  tile(indices<Rows>(), k, rows, row_stride, row_step, columns, column_step, out, out_stride, alpha, base,
       base_stride, ahead);
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
  // Whether c's neighbours are those of a tile's column. With one column or row both of c's strides are 1:
  // then the bias' tell.
  bool across() const { return column_stride != 1 || (base != nullptr && base_column_stride != 1); }
  Out added_to() const { return {at, row_stride, column_stride, alpha, at, row_stride, column_stride}; }
};

template <bool kAcross>
inline void put_line(Size length, const float* from, const float* base, float* to) {
  constexpr Size kStep = kAcross ? kColumns : 1;
  if (base != nullptr)
    for (Size i = 0; i < length; ++i) to[i] = base[i] + from[i * kStep];
  else
    for (Size i = 0; i < length; ++i) to[i] = from[i * kStep];
}

// Takes over what of a tile in memory exists in c.
void put(const float* tile, int rows, Size columns, const Out& out) {
  const bool across = out.across();
  const Size lines = across ? columns : rows, length = across ? rows : columns;
  const Size out_stride = across ? out.column_stride : out.row_stride;
  const Size base_stride = across ? out.base_column_stride : out.base_row_stride;
  for (Size line = 0; line < lines; ++line) {
    const float* const base = out.base != nullptr ? out.base + line * base_stride : nullptr;
    float* const to = out.at + line * out_stride;
    if (across)
      put_line<true>(length, tile + line, base, to);
    else
      put_line<false>(length, tile + line * kColumns, base, to);
  }
}

struct Panel {
  const float* at;
  Size step;
  Size columns;  // that exist
};

// `rows`, `panel`: of a part of k, as words. Scalars where they change from part to part: a struct goes
// through memory.
void compute_tile(const float* rows, Size line_stride, Size step, int count, const float* panel,
                  const Panel& of, Size k, const Out& out, Ahead& ahead, float* scratch) {
  const Tile compute = kTiles.of[count - 1];
  if (!out.across() && of.columns == kColumns) {
    compute(k, rows, line_stride, step, panel, of.step, out.at, out.row_stride, out.alpha, out.base,
            out.base_row_stride, &ahead);
  } else {
    compute(k, rows, line_stride, step, panel, of.step, scratch, kColumns, out.alpha, nullptr, 0, &ahead);
    put(scratch, count, of.columns, out);
  }
}

// The panels of `most` columns from `first` on, or of those that are left, for parts of k; returns their
// number.
Size make_panels(const Columns& columns, Size first, Size most, Size n, Size m, Size k, Size parts,
                 float* memory, Panel* panels) {
  Size count = 0;
  for (Size column = first; column < smaller(n, first + most); column += kColumns, ++count) {
    const Size there = smaller(kColumns, n - column);
    float* const copy = memory + count * kPanelFloats;
    panels[count] = {copy, kColumns, there};
    if (columns.gathered != nullptr) {
      const Size at_once = kPairs ? k : parts * k;  // a word belongs to one part
      for (Size done = 0; done < parts * k; done += at_once)
        pack_gathered({{}, columns.gathered, columns.begin + done}, column, at_once, there,
                      copy + done / k * words(k) * kColumns);
      continue;
    }
    const Lines here = columns.lines.from(column, columns.begin);
    if (!kPairs && here.line_stride == 1 && here.step != 1 && there == kColumns && m <= kFewRows)
      panels[count] = {here.at, here.step, there};
    else
      pack(here, k, there, copy);
  }
  return count;
}

Ahead columns_ahead(const Columns& columns, Size first, Size count, Size k) {
  return columns.gathered != nullptr ? Ahead() : Ahead(columns.lines.from(first, columns.begin), count, k);
}

// Some parts of k, each of `k`, whose sums are added one by one: c of m x n. A part's rows lie `part_stride`
// floats behind those of the one before; its columns follow. `more`: of k, behind these parts.
void multiply_parts(const Lines& rows, Size part_stride, Size m, const Columns& columns, Size n, Size k,
                    Size parts, Size more, const Out& out, float* scratch) {
  float* const panels = scratch + kTileFloats;
  const Size depth = words(k);
  const Strips strips(panels + kPanels * kPanelFloats + kVector, rows, parts * depth);
  const bool same_set = (rows.step == 1 ? rows.line_stride : rows.step) % kSameSet == 0;
  const bool copy_rows = kPairs || n > (same_set ? 1 : rows.step == 1 ? n : kFewPanels) * kColumns;
  const bool keep_strips = strips.hold(m);
  const Size together = (m <= kSomeRows ? kPanelsOfFew : kPanels) * kColumns;
  for (Size first = 0; first < n; first += together) {
    Panel group[kPanels];
    const Size count = make_panels(columns, first, together, n, m, k, parts, panels, group);
    const bool last = first + together >= n, new_rows = !copy_rows || first == 0 || !keep_strips;
    Ahead next_rows, next_columns;
    if (last)
      next_columns = columns_ahead({columns.lines, columns.gathered, columns.begin + parts * k}, 0,
                                   smaller(together, n), smaller(more, kBlock));
    else
      next_columns = columns_ahead(columns, first + together, smaller(together, n - first - together), k);
    for (Size row = 0, strip = 0; row < m; ++strip) {
      float* const copy = strips.strip(keep_strips ? strip : strip % strips.at_once);
      if (new_rows && strip % strips.at_once == 0) {
        for (Size part = 0; copy_rows && part < parts; ++part)
          pack_strips(Lines{rows.at + part * part_stride, rows.line_stride, rows.step}.from(row, 0), m - row,
                      k, strips, copy + part * depth * strips.step);
        const Size end = smaller(m, row + strips.at_once * kRows);
        next_rows = Ahead(rows.from(end, 0), smaller(m - end, strips.at_once * kRows), k);
      }
      Ahead& ahead = next_rows.done() ? next_columns : next_rows;
      const int height = tile_rows(m - row);
      const Lines here = copy_rows ? Lines{copy, strips.stride, strips.step} : rows.from(row, 0);
      const Size next = copy_rows ? depth * here.step : part_stride;
      for (Size i = 0; i < count; ++i) {
        const Panel& panel = group[i];
        const Out to = out.from(row, first + i * kColumns);
        compute_tile(here.at, here.line_stride, here.step, height, panel.at, panel, depth, to, ahead,
                     scratch);
        if (parts == 1) continue;
        const Out added = to.added_to();
        for (Size part = 1; part < parts; ++part)
          compute_tile(here.at + part * next, here.line_stride, here.step, height,
                       panel.at + part * depth * panel.step, panel, depth, added, ahead, scratch);
      }
      row += height;
    }
  }
}

void multiply_lines(const Lines& rows, Size m, Columns columns, Size n, Size k, Out out, float* scratch) {
  const Size all = words(k), blocks = all <= kBlock ? 1 : (all + kBlock - 1) / kBlock;
  for (Size block = 0, begin = 0; block < blocks; ++block, out = out.added_to()) {
    const Size size = smaller((all / blocks + (block < all % blocks ? 1 : 0)) * kInWord, k - begin);
    multiply_parts(rows.from(0, begin), 0, m, columns, n, size, 1, k - begin - size, out, scratch);
    begin += size, columns.begin += size;
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
      p.b_transposed && !p.a_transposed && p.m > kVector && p.n * p.k > p.m * p.k + 6 * p.m * p.n;
  if (exchanged)
    multiply_lines(b, p.n, {a, nullptr, 0}, p.m, p.k, to.transposed(), scratch);
  else
    multiply_lines(a, p.m, {b, nullptr, 0}, p.n, p.k, to, scratch);
}

void multiply_gathered(const GatheredMatmul& p, float* scratch) {
  const Lines a{p.a, p.a_transposed ? 1 : p.a_stride, p.a_transposed ? p.a_stride : 1};
  Out out{p.c, p.c_stride, 1, 1, nullptr, 0, 1};
  if (p.add) out = out.added_to();
  const Size depth = words(p.k);
  const Size together = depth < kBlock ? kBlock / depth : 1;  // parts, whose panels are as long as others
  for (Size part = 0; part < p.parts; part += together, out = out.added_to()) {
    const Lines rows{a.at + part * p.part_stride, a.line_stride, a.step};
    const Columns columns{{}, &p.b, part * p.k};
    const Size parts = smaller(together, p.parts - part);
    if (depth <= kBlock)
      multiply_parts(rows, p.part_stride, p.m, columns, p.n, p.k, parts, 0, out, scratch);
    else
      multiply_lines(rows, p.m, columns, p.n, p.k, out, scratch);
  }
}

// ---- images

// `count` floats that overlap no others: no load or store goes beyond them.
inline void copy(Size count, const float* from, float* to) {
  if (count >= kVector) {
    const Vector last = load(from + count - kVector);
    for (Size i = 0; i < count - kVector; i += kVector) store(to + i, load(from + i));
    store(to + count - kVector, last);
  } else if (count >= 4) {
    using Four = float __attribute__((vector_size(16)));
    Four values;
    for (Size i = 0; i < count; i += 4) {
      const Size at = smaller(i, count - 4);
      __builtin_memcpy(&values, from + at, sizeof values);
      __builtin_memcpy(to + at, &values, sizeof values);
    }
  } else {
    for (Size i = 0; i < count; ++i) to[i] = from[i];
  }
}

void spread(const Spread& s, const float* in, float* out) {
  for (Size plane = 0; plane < s.planes; ++plane, in += s.height * s.width)
    for (Size phase = 0; phase < s.phases * s.phases; ++phase, out += s.out_height * s.out_width) {
      const Size down = s.padding - phase / s.phases, right = s.padding - phase % s.phases;
      // The first places that lie inside the image.
      const Size top = down > 0 ? (down + s.stride - 1) / s.stride : 0;
      const Size start = right > 0 ? (right + s.stride - 1) / s.stride : 0;
      const Size end = smaller(s.out_width, (s.width + right + s.stride - 1) / s.stride);
      for (Size y = top; y < s.out_height && y * s.stride - down < s.height; ++y) {
        const float* const from = in + (y * s.stride - down) * s.width - right;
        float* const to = out + y * s.out_width;
        if (s.stride == 1)
          copy(end - start, from + start, to + start);
        else
          for (Size x = start; x < end; ++x) to[x] = from[x * s.stride];
      }
    }
}

void transpose_planes(Size planes, Size pixels, const float* in, const std::int32_t* places, float* out) {
  for (Size plane = 0; plane < planes; plane += kVector) {
    const float* const from = in + plane * pixels;
    const Size count = smaller(kVector, planes - plane);
    Size pixel = 0;
    for (; count == kVector && pixel + kVector <= pixels; pixel += kVector) {
      Vector block[kVector];
#pragma GCC unroll 16
      for (int i = 0; i < kVector; ++i) block[i] = load(from + i * pixels + pixel);
      transpose(block);
#pragma GCC unroll 16
      for (int i = 0; i < kVector; ++i) store(out + places[pixel + i] + plane, block[i]);
    }
    for (; pixel < pixels; ++pixel)
      for (Size i = 0; i < count; ++i) out[places[pixel] + plane + i] = from[i * pixels + pixel];
  }
}

}  // namespace
}  // namespace dtrun::worker::matmul::DTRUN_KERNELS

namespace dtrun::worker {

template <>
const matmul::Kernels Copies<matmul::Kernels>::DTRUN_KERNELS = {
    .instruction_set = DTRUN_KERNELS_NAME,
    .scratch = matmul::DTRUN_KERNELS::kScratch,
    .multiply = matmul::DTRUN_KERNELS::multiply,
    .multiply_gathered = matmul::DTRUN_KERNELS::multiply_gathered,
    .spread = matmul::DTRUN_KERNELS::spread,
    .transpose_planes = matmul::DTRUN_KERNELS::transpose_planes};

}  // namespace dtrun::worker
