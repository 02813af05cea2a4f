// Fibers: stacks that one OS thread switches between by itself, in some 10 ns. A CUDA thread that has to wait
// for others is one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "tests/cuda_on_cpu/sanitizer.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

#if defined(__x86_64__)
// Saves the registers that a callee must keep on this stack, leaves its pointer in *from, and goes on where
// `to` was left. The system's swapcontext also sets the signal mask: two system calls, half a microsecond.
extern "C" __attribute__((naked, noinline, no_sanitize("address", "thread", "undefined"))) inline void
cuda_on_cpu_switch(void** /*from*/, void* /*to*/) {
  asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}

class Context {
 public:
  // `entry` begins on this stack when it is switched to first, and never returns.
  CUDA_ON_CPU_UNSEEN void prepare(char* stack, std::size_t bytes, void (*entry)()) {
    void** top =
        reinterpret_cast<void**>(stack + bytes) - 1;  // a return address of 0; aligned as after a call
    *--top = reinterpret_cast<void*>(entry);
    stack_pointer_ = top - 6;
  }
  CUDA_ON_CPU_UNSEEN void switch_to(Context& other) {
    cuda_on_cpu_switch(&stack_pointer_, other.stack_pointer_);
  }

 private:
  void* stack_pointer_ = nullptr;
};
#else
class Context {
 public:
  void prepare(char* stack, std::size_t bytes, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }
  void switch_to(Context& other) { swapcontext(&context_, &other.context_); }

 private:
  ucontext_t context_;
};
#endif

struct Fiber {
  Context context;
  int thread = -1;        // number in the block
  uint3 index{};          // the same as threadIdx
  bool waited = false;    // for the work in front of its grid
  Fiber* next = nullptr;  // in the list that it is in
  // What sanitizers know it by.
  void* fake_stack = nullptr;
  const void* stack_bottom = nullptr;
  std::size_t stack_bytes = 0;
  void* tsan = nullptr;
};

// First in, first out.
class FiberList {
 public:
  CUDA_ON_CPU_UNSEEN bool empty() const { return first_ == nullptr; }
  CUDA_ON_CPU_UNSEEN int size() const { return size_; }
  CUDA_ON_CPU_UNSEEN void push(Fiber* fiber) {
    fiber->next = nullptr;
    (first_ ? last_->next : first_) = fiber;
    last_ = fiber;
    ++size_;
  }
  CUDA_ON_CPU_UNSEEN Fiber* pop() {
    Fiber* const fiber = first_;
    first_ = fiber->next;
    --size_;
    return fiber;
  }
  // `other` goes to the front and becomes empty.
  CUDA_ON_CPU_UNSEEN void prepend(FiberList& other) {
    if (other.empty()) return;
    other.last_->next = first_;
    if (!first_) last_ = other.last_;
    first_ = other.first_;
    size_ += other.size_;
    other.first_ = nullptr;
    other.size_ = 0;
  }

 private:
  Fiber *first_ = nullptr, *last_ = nullptr;
  int size_ = 0;
};

}  // namespace cuda_on_cpu
