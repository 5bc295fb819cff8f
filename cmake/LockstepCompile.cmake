# How our own code is compiled. On the host, kernels need -fno-trapping-math to be vectorised (not -ffast-math: sums keep
# their order). Warnings are errors with CMAKE_COMPILE_WARNING_AS_ERROR, which .ci/run sets: never in a reader's own file.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "The compiler is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER}), which "
                      "cannot build Lockstep: use g++ 12 or later, in a new build folder (cmake -D CMAKE_CXX_COMPILER=g++-12 ...)")
endif()
# A message names a place within the project; where that lay when it was built is nobody's business.
set(lockstep_no_paths "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${lockstep_no_paths}>" "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${lockstep_no_paths}>")
add_library(lockstep_options INTERFACE)
set(lockstep_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
set(lockstep_cuda_options --extended-lambda)
if(LOCKSTEP_SANITIZE)
  list(APPEND lockstep_warnings -Wno-maybe-uninitialized)  # with sanitizers, g++ sees it in std::regex
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${lockstep_warnings}>")
list(JOIN lockstep_warnings "," lockstep_warnings_through_nvcc)
target_compile_options(
  lockstep_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${lockstep_cuda_options};-Xcompiler=${lockstep_warnings_through_nvcc},-Wno-unknown-pragmas>")
if(LOCKSTEP_BACKEND STREQUAL host)
  target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fno-trapping-math;-fno-math-errno;-Wno-unknown-pragmas>")
  if(LOCKSTEP_NATIVE)
    target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-march=native>")
    # g++ 12.2 makes {1, 1, 1, 1} of the constant {1, 1, 0, 0} (int64) where it moves 32 bytes at once; 14 does not.
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64
       AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12 AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
      target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-mmove-max=128;-mstore-max=128>")
    endif()
  endif()
endif()

# What device code is compiled with to be profiled (docs/profiling.md): calls before each load and store, which hostcuda
# supplies; whole vectors loaded as such, not member by member. Programs are linked without the sanitizer.
set(lockstep_profiled -O1 -g -fsanitize=thread -fno-tree-sra)

# Marks .cu files for the compiler of the backend: nvcc, or g++ as C++.
function(lockstep_kernel_sources)
  foreach(source IN LISTS ARGN)
    if(source MATCHES "\\.cu$" AND LOCKSTEP_BACKEND STREQUAL host)
      set_source_files_properties(${source} PROPERTIES LANGUAGE CXX)
      if(LOCKSTEP_PROFILED)
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${lockstep_profiled}")
      endif()
    endif()
  endforeach()
endfunction()
