# `cmake --install` writes these files. The installed tree may be moved as a whole.
#   bin/tessera                     the program
#   lib/libtessera.so               the engine with the C interface include/tessera.h; it exports nothing else
#   lib/libtessera_cpp.so           the layers up to the server in one library, for C++ built with the same compiler
#   lib/libtessera_cuda.so          the CUDA backend, if it was built
#   lib/tessera/plugins/            the plugin of plugins/opencl, if it was built
#   share/                          the program's manual page, and its completions for bash, zsh and fish
#   share/doc/tessera/examples/     examples/: plugins, and programs that use the libraries
#   share/tessera/models/demo/      the bundled model
#   include/tessera.h               the C interface
#   include/tessera_plugin.h        the header of plugins
#   include/tessera/<layer>/*.h     the headers of libtessera_cpp.so's layers, except those excluded below
#   lib/cmake/tessera/              find_package(tessera), targets tessera::c and tessera::tessera (C++)
#   lib/pkgconfig/tessera.pc        the C interface
include(CMakePackageConfigHelpers)

# libtessera_cpp.so contains all objects of its layers. The layers' archives are linked too, but only to add the
# third-party libraries that the layers need. (Linking whole archives instead of objects would give the same library,
# but CMake 3.25 names an archive twice if another layer depends on it.)
get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
list(REMOVE_ITEM layers options capi load cli)  # the C++ library does not have these
add_library(tessera_library SHARED)
add_library(tessera::tessera ALIAS tessera_library)
foreach(layer IN LISTS layers)
  target_sources(tessera_library PRIVATE $<TARGET_OBJECTS:tessera_${layer}>)
  if(TARGET tessera_${layer}_vectorised)
    target_sources(tessera_library PRIVATE $<TARGET_OBJECTS:tessera_${layer}_vectorised>)
  endif()
  target_link_libraries(tessera_library PRIVATE tessera_${layer})
endforeach()
target_include_directories(tessera_library INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tessera_library INTERFACE cxx_std_20)
target_link_libraries(tessera_library INTERFACE fmt::fmt)  # base/log.h includes it
if(TESSERA_SANITIZE)
  target_link_options(tessera_library PUBLIC -fsanitize=${TESSERA_SANITIZE})
endif()
set_target_properties(tessera_library PROPERTIES
  LINKER_LANGUAGE CXX
  OUTPUT_NAME tessera_cpp
  EXPORT_NAME tessera
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

# TESSERA_ABI is the number in the name of libtessera.so. A change must increase it if programs that were built earlier
# could no longer run.
set(TESSERA_ABI 1)
set(c_symbols ${CMAKE_CURRENT_LIST_DIR}/tessera.map)
add_library(tessera_c SHARED $<TARGET_OBJECTS:tessera_capi> ${PROJECT_SOURCE_DIR}/src/cli/program.cpp
  ${PROJECT_SOURCE_DIR}/src/capi/curl_on_demand.cpp)
add_library(tessera::c ALIAS tessera_c)
target_link_libraries(tessera_c PRIVATE tessera_capi tessera_cli)
target_link_options(tessera_c PRIVATE
  LINKER:--version-script=${c_symbols} LINKER:--no-undefined LINKER:--gc-sections LINKER:--as-needed)
# program.cpp defines tessera_main. tests/abi_test.sh reads the type of this function from debug information.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/program.cpp TARGET_DIRECTORY tessera_c PROPERTIES COMPILE_OPTIONS -g)
target_include_directories(tessera_c INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(tessera_c PROPERTIES
  LINKER_LANGUAGE CXX
  LINK_DEPENDS ${c_symbols}
  OUTPUT_NAME tessera
  EXPORT_NAME c
  VERSION ${TESSERA_ABI}
  SOVERSION ${TESSERA_ABI}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

install(TARGETS tessera_library EXPORT tessera_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tessera_c EXPORT tessera_c_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/tessera.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(FILES include/tessera_plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/tessera)
install(DIRECTORY models/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/models)
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera FILES_MATCHING
  PATTERN "*.h"
  PATTERN "load" EXCLUDE  # libtessera_cpp.so lacks this layer and the next three
  PATTERN "capi" EXCLUDE
  PATTERN "options" EXCLUDE
  PATTERN "cli" EXCLUDE
  PATTERN "testing" EXCLUDE
  PATTERN "cuda*" EXCLUDE  # the CUDA backend is a library of its own, without headers
  PATTERN "*_cuda*" EXCLUDE
  PATTERN "cudnn" EXCLUDE
  PATTERN "flashinfer" EXCLUDE
  PATTERN "decode_attention.h" EXCLUDE  # this header and the next include the backend's headers
  PATTERN "prefill_attention.h" EXCLUDE
  PATTERN "cpu_norm.h" EXCLUDE  # this header and the next two are internals of kernels
  PATTERN "latent_rotation.h" EXCLUDE
  PATTERN "greatest.h" EXCLUDE
  PATTERN "block_products.h" EXCLUDE  # this header and the next are compiled once for each instruction set
  PATTERN "row_cpu_loops.h" EXCLUDE
  PATTERN "test_*" EXCLUDE
  PATTERN "*_test*" EXCLUDE)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(EXPORT tessera_targets NAMESPACE tessera:: DESTINATION ${package_dir})
install(EXPORT tessera_c_targets NAMESPACE tessera:: DESTINATION ${package_dir})  # needs no other package
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
  DESTINATION ${package_dir})

set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_prefix /${pc_dir} /)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc DESTINATION ${pc_dir})
