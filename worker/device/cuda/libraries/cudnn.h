// cuDNN's functions as this program uses them: its graph API, which makes and runs plans for whole
// operations.
#pragma once

#include <cudnn.h>

#include <string>

namespace dtrun::worker::cuda {

struct Cudnn {
  decltype(&cudnnGetVersion) get_version = nullptr;
  decltype(&cudnnGetCudartVersion) get_cudart_version = nullptr;
  decltype(&cudnnGetErrorString) get_error_string = nullptr;
  decltype(&cudnnGetLastErrorString) get_last_error_string = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

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
