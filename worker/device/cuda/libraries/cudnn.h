// cuDNN's functions as this program uses them: its graph API, which makes and runs plans for whole
// operations.
#pragma once

#include <cudnn.h>

#include <string>

#include "worker/device/cuda/libraries/open.h"

namespace dtrun::worker::cuda {

#define DTRUN_CUDNN(F)                                 \
  F(get_version, cudnnGetVersion)                      \
  F(get_cudart_version, cudnnGetCudartVersion)         \
  F(get_error_string, cudnnGetErrorString)             \
  F(get_last_error_string, cudnnGetLastErrorString)    \
  F(create, cudnnCreate)                               \
  F(destroy, cudnnDestroy)                             \
  F(set_stream, cudnnSetStream)                        \
  F(create_descriptor, cudnnBackendCreateDescriptor)   \
  F(destroy_descriptor, cudnnBackendDestroyDescriptor) \
  F(set_attribute, cudnnBackendSetAttribute)           \
  F(get_attribute, cudnnBackendGetAttribute)           \
  F(finalize, cudnnBackendFinalize)                    \
  F(execute, cudnnBackendExecute)

struct Cudnn {
  DTRUN_TABLE_OF(DTRUN_CUDNN)

  std::string version;  // "9.19.0"
  std::string file;     // the library's file
};

// The first call opens the library; later ones return the same table. Null if there is no cuDNN 9 for CUDA
// 13, from 9.8 on: callers then compute without it, and report why_no_cudnn(). Any thread. A program may link
// other definitions than those of cudnn_loaded.cc.
const Cudnn* cudnn();

// One line that names every place that was searched; "" if there is cuDNN.
const std::string& why_no_cudnn();

}  // namespace dtrun::worker::cuda
