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
  std::string file;     // where it was found
};

// Opened by the first call; later ones give the same. Null where there is no cuDNN 9 for CUDA 13, from 9.8
// on: whoever wanted it computes otherwise, and says why_no_cudnn(). Any thread. A program may link other
// definitions than cudnn_loaded.cc's.
const Cudnn* cudnn();

// One line that names every place looked in; "" where there is cuDNN.
const std::string& why_no_cudnn();

}  // namespace dtrun::worker::cuda
