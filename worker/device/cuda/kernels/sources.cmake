# The kernels, for nvcc in the matmul and for the host's compiler in tests. EXACT ones must not be contracted
# (nvcc: --fmad=false): their bits are the CPU's.
set(dtrun_cuda_kernels attention.cu batch_norm.cu cross_entropy.cu columns.cu elementwise.cu embedding.cu images.cu norm.cu partials.cu
    trial.cu)
set(dtrun_cuda_kernels_exact quantize.cu vector.cu)
# Plain C++ that goes with them.
set(dtrun_cuda_kernels_host launches.cc token_runs.cc)
foreach(list dtrun_cuda_kernels dtrun_cuda_kernels_exact dtrun_cuda_kernels_host)
  list(TRANSFORM ${list} PREPEND ${CMAKE_SOURCE_DIR}/worker/device/cuda/kernels/)
endforeach()
