# Prepares the build of the CUDA backend, libtessera_cuda.so, which the program loads at run time
# (src/ops/device_registry.h). With TESSERA_CUDA=AUTO the backend is built if nvcc of CUDA 12.8 or newer is found. With
# OFF it is not built. With ON a missing nvcc is an error.
#
# TESSERA_CUDA_FOUND says whether the backend is built. TESSERA_CUDA_LIBRARIES says whether the header libraries of
# tools/cuda_headers.txt were fetched. Without these libraries attention uses only our own kernels.
set(TESSERA_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (where nvcc is found), ON or OFF")
set(TESSERA_CUDA_ARCHITECTURES "80;89;90a" CACHE STRING "GPU architectures; 80 brings PTX for newer ones")

option(TESSERA_CUDA_OPTIMISE "Optimise kernels; OFF compiles them in half the time, where no GPU runs them" ON)

set(TESSERA_CUDA_FOUND OFF)
if(NOT TESSERA_CUDA STREQUAL "OFF")
  find_program(nvcc_program nvcc PATHS /usr/local/cuda/bin)
  find_package(CUDAToolkit 12.8 QUIET)
  if(nvcc_program AND CUDAToolkit_FOUND)
    set(CMAKE_CUDA_COMPILER ${nvcc_program})
    if(ccache_program AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${ccache_launcher})
    endif()
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # TESSERA_CUDA_GENCODE has the options instead
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know nvcc's option
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    set(TESSERA_CUDA_FOUND ON)
    set(optimised "")
    if(NOT TESSERA_CUDA_OPTIMISE)
      if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
        message(WARNING "TESSERA_CUDA_OPTIMISE=OFF needs nvcc 13.0 or newer, and this is ${CMAKE_CUDA_COMPILER_VERSION}: kernels are optimised")
        set(TESSERA_CUDA_OPTIMISE ON)
      else()
        set(optimised ", not optimised")
      endif()
    endif()
    message(STATUS "CUDA backend: ${CMAKE_CUDA_COMPILER_VERSION}, for ${TESSERA_CUDA_ARCHITECTURES}${optimised}")
  elseif(TESSERA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TESSERA_CUDA is ON, and there is no nvcc of CUDA 12.8 or newer on the PATH or in /usr/local/cuda/bin")
  else()
    set(why_no_cuda "there is no nvcc of CUDA 12.8 or newer on the PATH or in /usr/local/cuda/bin")
  endif()
else()
  set(why_no_cuda "TESSERA_CUDA is OFF")
endif()
if(NOT TESSERA_CUDA_FOUND)
  message(STATUS "CUDA backend: not built, ${why_no_cuda}")
  add_custom_target(tessera_cuda COMMAND ${CMAKE_COMMAND} -E echo "The CUDA backend is not built: ${why_no_cuda}." VERBATIM)
  return()
endif()

set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # the backend links no shared library of CUDA but cuBLASLt

set(TESSERA_CUDA_GENCODE "")
foreach(arch IN LISTS TESSERA_CUDA_ARCHITECTURES)
  if(arch STREQUAL "80")
    list(APPEND TESSERA_CUDA_GENCODE -gencode=arch=compute_80,code=[sm_80,compute_80])
  else()
    list(APPEND TESSERA_CUDA_GENCODE -gencode=arch=compute_${arch},code=sm_${arch})
  endif()
endforeach()

set(cuda_headers ${PROJECT_BINARY_DIR}/third_party)
execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/fetch_pypi.sh cuda_headers ${cuda_headers}
                RESULT_VARIABLE fetch_result ERROR_VARIABLE fetch_error OUTPUT_QUIET)
if(fetch_result EQUAL 0)
  set(TESSERA_CUDA_LIBRARIES ON)
  add_library(tessera_flashinfer INTERFACE)
  target_include_directories(tessera_flashinfer SYSTEM INTERFACE ${cuda_headers}/flashinfer/include)
  add_library(tessera_cudnn_frontend INTERFACE)
  target_include_directories(tessera_cudnn_frontend SYSTEM INTERFACE ${cuda_headers}/cudnn_frontend/include)
else()
  set(TESSERA_CUDA_LIBRARIES OFF)
  message(WARNING "CUDA backend without FlashInfer and cuDNN's frontend, attention is slower: ${fetch_error}")
endif()

# Sets the options for a target's CUDA sources. tessera_compile_options() sets the options for its C++ sources.
function(tessera_cuda_options TARGET)
  target_compile_options(${TARGET} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-O3;--expt-relaxed-constexpr;--expt-extended-lambda;-Xcompiler=-Wall,-Wextra;-Wno-deprecated-gpu-targets>"
    "$<$<COMPILE_LANGUAGE:CUDA>:--diag-suppress=20012;$<IF:$<BOOL:${TESSERA_CUDA_OPTIMISE}>,-lineinfo,-Ofc=max>>")
endfunction()
