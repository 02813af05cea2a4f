#include "worker/device/cuda/cudnn/descriptor.h"

#include <algorithm>

namespace dtrun::worker::cuda {

void check_cudnn(const Cudnn& cudnn, cudnnStatus_t status, const std::string& doing) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char words[2048] = "";
  cudnn.get_last_error_string(words, sizeof words);
  std::string said = words;
  std::replace(said.begin(), said.end(), '\n', ' ');
  said.erase(said.find_last_not_of(' ') + 1);
  throw CudnnRefusal("cuDNN " + cudnn.version + ": " + cudnn.get_error_string(status) + " (" + doing + ")" +
                     (said.empty() ? "" : ": " + said));
}

Descriptor::Descriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type) : cudnn_(&cudnn), type_(type) {
  check_cudnn(cudnn, cudnn.create_descriptor(type, &object_), "making descriptor " + std::to_string(type));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  free();
  cudnn_ = other.cudnn_;
  type_ = other.type_;
  object_ = std::exchange(other.object_, nullptr);
  return *this;
}

void Descriptor::free() {
  if (object_ != nullptr) cudnn_->destroy_descriptor(object_);
}

Descriptor& Descriptor::finalize() {
  check_cudnn(*cudnn_, cudnn_->finalize(object_), "descriptor " + std::to_string(type_));
  return *this;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::size_t count, const void* values) {
  check_cudnn(*cudnn_, cudnn_->set_attribute(object_, name, type, static_cast<std::int64_t>(count), values),
              "attribute " + std::to_string(name) + " of descriptor " + std::to_string(type_));
  return *this;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> objects;
  for (const Descriptor& value : values) objects.push_back(value.object_);
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, objects.size(), objects.data());
}

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             std::size_t most, void* values) const {
  std::int64_t count = 0;
  check_cudnn(*cudnn_,
              cudnn_->get_attribute(object_, name, type, static_cast<std::int64_t>(most), &count, values),
              "reading attribute " + std::to_string(name) + " of descriptor " + std::to_string(type_));
  return count;
}

Descriptor Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const {
  Descriptor value(*cudnn_, type);
  get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.object_);
  return value;
}

std::vector<Descriptor> Descriptor::get_all(cudnnBackendAttributeName_t name,
                                            cudnnBackendDescriptorType_t type) const {
  std::vector<Descriptor> values;
  std::vector<cudnnBackendDescriptor_t> objects;
  for (std::int64_t left = get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr); left > 0; --left)
    objects.push_back(values.emplace_back(*cudnn_, type).object_);
  const std::int64_t count = get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, objects.size(), objects.data());
  while (static_cast<std::int64_t>(values.size()) > count) values.pop_back();
  return values;
}

std::string Descriptor::get_text(cudnnBackendAttributeName_t name) const {
  std::string text(static_cast<std::size_t>(get(name, CUDNN_TYPE_CHAR, 0, nullptr)), '\0');
  get(name, CUDNN_TYPE_CHAR, text.size(), text.data());
  text.erase(text.find_last_not_of('\0') + 1);
  return text;
}

}  // namespace dtrun::worker::cuda
