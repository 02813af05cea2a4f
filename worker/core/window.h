// Square windows over an image: of a convolution or a pooling.
#pragma once

namespace dtrun::worker {

// How often a window of `kernel` values, moved by `stride`, fits into `size` values with `padding` on either
// side; a rest is dropped. REQUIRES: kernel <= size + 2 * padding.
constexpr int window_places(int size, int kernel, int stride, int padding) {
  return (size + 2 * padding - kernel) / stride + 1;
}

}  // namespace dtrun::worker
