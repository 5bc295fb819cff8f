# `cmake --install` and find_package(lockstep): the libraries, every layer's headers under include/lockstep, and
# the exported target lockstep::lockstep, with hostcuda where that is the backend.
include(CMakePackageConfigHelpers)
set(lockstep_package ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

if(LOCKSTEP_BACKEND STREQUAL host)
  install(TARGETS hostcuda EXPORT lockstep-targets)
  install(DIRECTORY hostcuda/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/hostcuda)
else()
  install(TARGETS lockstep_cuda_api EXPORT lockstep-targets)
endif()
install(TARGETS lockstep EXPORT lockstep-targets FILE_SET HEADERS)
install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION ${lockstep_package})

configure_package_config_file(cmake/lockstep-config.cmake.in ${PROJECT_BINARY_DIR}/lockstep-config.cmake
                              INSTALL_DESTINATION ${lockstep_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstep-config.cmake ${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
        DESTINATION ${lockstep_package})
