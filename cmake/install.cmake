# What `cmake --install` lays out, all of it movable as a whole:
#   bin/tessera                     the program
#   lib/libtessera.so               all layers but load and cli in one library
#   include/tessera/<layer>/*.h     every header of src/ except the tests'
#   lib/cmake/tessera/              find_package(tessera), target tessera::tessera
include(CMakePackageConfigHelpers)

# The layers' objects, every one of them; their archives then only bring third-party libraries along. (Whole archives
# would do the same, but where one layer brings another CMake 3.25 names it twice.)
get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
list(REMOVE_ITEM layers options load cli)  # the program's own
add_library(tessera_library SHARED)
add_library(tessera::tessera ALIAS tessera_library)
foreach(layer IN LISTS layers)
  target_sources(tessera_library PRIVATE $<TARGET_OBJECTS:tessera_${layer}>)
  target_link_libraries(tessera_library PRIVATE tessera_${layer})
endforeach()
target_include_directories(tessera_library INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tessera_library INTERFACE cxx_std_20)
target_link_libraries(tessera_library INTERFACE fmt::fmt)  # base/log.h shows it
if(TESSERA_SANITIZE)
  target_link_options(tessera_library PUBLIC -fsanitize=${TESSERA_SANITIZE})
endif()
set_target_properties(tessera_library PROPERTIES
  LINKER_LANGUAGE CXX
  OUTPUT_NAME tessera
  EXPORT_NAME tessera
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

install(TARGETS tessera_library EXPORT tessera_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera FILES_MATCHING
  PATTERN "*.h"
  PATTERN "load" EXCLUDE  # the program's own, as is cli
  PATTERN "options" EXCLUDE
  PATTERN "cli" EXCLUDE
  PATTERN "testing" EXCLUDE
  PATTERN "cuda*" EXCLUDE  # the CUDA backend is a library of its own, without headers
  PATTERN "*_cuda*" EXCLUDE
  PATTERN "cudnn" EXCLUDE
  PATTERN "flashinfer" EXCLUDE
  PATTERN "decode_attention.h" EXCLUDE  # which include the backend's
  PATTERN "prefill_attention.h" EXCLUDE
  PATTERN "cpu_norm.h" EXCLUDE  # kernels' insides
  PATTERN "latent_rotation.h" EXCLUDE
  PATTERN "row_cpu_loops.h" EXCLUDE
  PATTERN "test_*" EXCLUDE
  PATTERN "*_test*" EXCLUDE)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(EXPORT tessera_targets NAMESPACE tessera:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
  DESTINATION ${package_dir})
