# The CUDA side: the toolkit's runtime, cuBLAS and cuDNN behind the target lockstep_cuda_api.
# CMAKE_CUDA_ARCHITECTURES overrides the list; the last entry is PTX, for GPUs younger than the toolkit.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real 90-virtual)
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know that nvcc can
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit REQUIRED)

find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  message(FATAL_ERROR "cuDNN (cudnn.h and libcudnn) was not found: install it, or point CUDNN_INCLUDE_DIR and "
                      "CUDNN_LIBRARY at it; the host backend needs neither")
endif()

add_library(lockstep_cuda_api INTERFACE)
target_include_directories(lockstep_cuda_api SYSTEM INTERFACE ${CUDNN_INCLUDE_DIR})
target_link_libraries(lockstep_cuda_api INTERFACE CUDA::cublas ${CUDNN_LIBRARY})
if(LOCKSTEP_SELF_CONTAINED)
  target_link_libraries(lockstep_cuda_api INTERFACE CUDA::cudart_static)
else()
  target_link_libraries(lockstep_cuda_api INTERFACE CUDA::cudart)
endif()
