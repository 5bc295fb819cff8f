# The headers as users of the library include them, `#include <lockstep/core/tensor.h>`: copies whose own includes
# are written the same way, so that nobody's core/ or nn/ comes in between. They are made in the build tree, by a build
# step that runs this file as a script, and installed from there; inside the repository nothing includes them.
if(CMAKE_SCRIPT_MODE_FILE)
  foreach(header IN LISTS HEADERS)
    file(READ ${SOURCE}/${header} text)
    string(REGEX REPLACE "#include \"((kernels|core|nn|parallel)/[^\"]*)\"" "#include <lockstep/\\1>" text "${text}")
    set(old "")
    if(EXISTS ${DESTINATION}/lockstep/${header})
      file(READ ${DESTINATION}/lockstep/${header} old)
    endif()
    if(NOT text STREQUAL old)
      file(WRITE ${DESTINATION}/lockstep/${header} "${text}")
    endif()
  endforeach()
  file(TOUCH ${STAMP})
  return()
endif()

file(GLOB_RECURSE lockstep_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} kernels/*.h kernels/*.cuh core/*.h
     nn/*.h nn/*.cuh parallel/*.h)
set(lockstep_public ${PROJECT_BINARY_DIR}/include)
list(TRANSFORM lockstep_headers PREPEND ${lockstep_public}/lockstep/ OUTPUT_VARIABLE lockstep_public_headers)
add_custom_command(
  OUTPUT ${PROJECT_BINARY_DIR}/headers.stamp
  BYPRODUCTS ${lockstep_public_headers}
  COMMAND ${CMAKE_COMMAND} -D "HEADERS=${lockstep_headers}" -D SOURCE=${PROJECT_SOURCE_DIR} -D DESTINATION=${lockstep_public}
          -D STAMP=${PROJECT_BINARY_DIR}/headers.stamp -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${lockstep_headers} ${CMAKE_CURRENT_LIST_FILE}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} COMMENT "Copying headers" VERBATIM)
target_sources(lockstep PRIVATE ${PROJECT_BINARY_DIR}/headers.stamp
               PUBLIC FILE_SET HEADERS BASE_DIRS ${lockstep_public} FILES ${lockstep_public_headers})
