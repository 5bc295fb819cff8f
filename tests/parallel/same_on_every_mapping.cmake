# Runs PROGRAM (test_parallel) with 4 logical devices on 1, 2 and 4 physical ones and compares the checksums of
# the weights that it prints. HOSTCUDA_THREADS is the same each time, as the promise demands.
foreach(devices 1 2 4)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env HOSTCUDA_DEVICES=${devices} HOSTCUDA_THREADS=1 ${PROGRAM}
                          --gtest_filter=*PrintAChecksumOfTheirWeights
                  OUTPUT_VARIABLE output RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "with ${devices} devices: exit ${status}\n${output}")
  endif()
  string(REGEX MATCHALL "weights of [^\n]*" lines "${output}")
  list(LENGTH lines count)
  if(count LESS 10)
    message(FATAL_ERROR "with ${devices} devices: expected 10 checksums or more, found ${count}\n${output}")
  endif()
  message(STATUS "${devices} physical: ${lines}")
  if(DEFINED first AND NOT lines STREQUAL first)
    message(FATAL_ERROR "${devices} physical devices give other weights than one:\n${lines}\n${first}")
  endif()
  set(first "${lines}")
endforeach()
