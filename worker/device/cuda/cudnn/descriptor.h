// One object of cuDNN's graph API: made of a type, given attributes, finalized, freed at the end.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker/device/cuda/libraries/cudnn.h"

namespace dtrun::worker::cuda {

// A refusal by cuDNN, with cuDNN's own message.
class CudnnRefusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws CudnnRefusal with `doing` and the library's last message unless the call went well.
void check_cudnn(const Cudnn& cudnn, cudnnStatus_t status, const std::string& doing);

class Descriptor {
 public:
  // REQUIRES: `cudnn` outlives the descriptor.
  Descriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type);
  ~Descriptor() { free(); }
  Descriptor(Descriptor&& other) noexcept
      : cudnn_(other.cudnn_), type_(other.type_), object_(std::exchange(other.object_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, attribute_type<T>(), 1, &value);
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    return set(name, attribute_type<T>(), values.size(), values.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.object_);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values);
  Descriptor& set(cudnnBackendAttributeName_t name, const std::string& text) {
    return set(name, CUDNN_TYPE_CHAR, text.size(), text.data());
  }
  Descriptor& finalize();

  // REQUIRES: the descriptor is finalized. get_many: up to `most` values.
  template <class T>
  T get(cudnnBackendAttributeName_t name) const {
    T value{};
    get(name, attribute_type<T>(), 1, &value);
    return value;
  }
  template <class T>
  std::vector<T> get_many(cudnnBackendAttributeName_t name, std::size_t most) const {
    std::vector<T> values(most);
    values.resize(static_cast<std::size_t>(get(name, attribute_type<T>(), most, values.data())));
    return values;
  }
  Descriptor get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const;
  std::vector<Descriptor> get_all(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const;
  std::string get_text(cudnnBackendAttributeName_t name) const;

  const Cudnn& cudnn() const { return *cudnn_; }
  cudnnBackendDescriptor_t object() const { return object_; }  // stays owned by this

 private:
  template <class T>
  static constexpr cudnnBackendAttributeType_t attribute_type();
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
                  const void* values);
  // Returns the attribute's number of values; writes at most `most`.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t most,
                   void* values) const;
  void free();

  const Cudnn* cudnn_;
  cudnnBackendDescriptorType_t type_;
  cudnnBackendDescriptor_t object_ = nullptr;
};

template <class T>
constexpr cudnnBackendAttributeType_t Descriptor::attribute_type() {
  if constexpr (std::is_same_v<T, std::int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<T, double>) return CUDNN_TYPE_DOUBLE;
  if constexpr (std::is_same_v<T, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>) return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  if constexpr (std::is_same_v<T, cudnnBackendNumericalNote_t>) return CUDNN_TYPE_NUMERICAL_NOTE;
}

}  // namespace dtrun::worker::cuda
