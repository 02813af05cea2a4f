// gloo's headers of the TCP transport include this one, and Debian's libgloo-dev leaves it out. This file has
// the declarations that those headers and mesh.cc need: pointers to an object that another owns. Their
// remaining code is in the library. CMake searches this folder last, so that an installed header takes
// precedence.
#pragma once

#include <memory>

namespace gloo {

template <typename T>
class WeakNonOwningPtr;

template <typename T>
class ShareableNonOwningPtr final {
  std::shared_ptr<T> ptr_;
  friend class WeakNonOwningPtr<T>;
};

template <typename T>
class WeakNonOwningPtr final {
 public:
  WeakNonOwningPtr() = default;
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>& from) : ptr_(from.ptr_) {}

 private:
  std::weak_ptr<T> ptr_;
  template <typename>
  friend class NonOwningPtr;
};

// Null if the object is gone; the owner's destructor waits for this one.
template <typename T>
class NonOwningPtr final {
 public:
  NonOwningPtr() = default;
  explicit NonOwningPtr(const WeakNonOwningPtr<T>& from) : ptr_(from.ptr_.lock()) {}
  T* operator->() const noexcept { return ptr_.get(); }
  explicit operator bool() const noexcept { return ptr_ != nullptr; }

 private:
  std::shared_ptr<T> ptr_;
};

}  // namespace gloo
