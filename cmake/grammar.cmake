# Builds constrained output (src/engine/grammar/grammar.h): a static library of xgrammar's C++ sources, which come from
# PyPI (tools/xgrammar.txt). With TESSERA_GRAMMAR=AUTO the library is built if the sources are already in the build
# folder or can be fetched. With OFF it is not built. With ON missing sources are an error. An engine without the
# library refuses every grammar.
set(TESSERA_GRAMMAR AUTO CACHE STRING "Build constrained output: AUTO (where xgrammar can be fetched), ON or OFF")

set(TESSERA_GRAMMAR_FOUND OFF)
if(TESSERA_GRAMMAR STREQUAL "OFF")
  return()
endif()
execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/fetch_pypi.sh xgrammar ${PROJECT_BINARY_DIR}/third_party
                RESULT_VARIABLE fetch_result ERROR_VARIABLE fetch_error OUTPUT_QUIET)
if(NOT fetch_result EQUAL 0)
  if(TESSERA_GRAMMAR STREQUAL "ON")
    message(FATAL_ERROR "TESSERA_GRAMMAR is ON, and xgrammar cannot be fetched: ${fetch_error}")
  endif()
  message(WARNING "No constrained output, xgrammar cannot be fetched: ${fetch_error}")
  return()
endif()
set(TESSERA_GRAMMAR_FOUND ON)

set(xgrammar ${PROJECT_BINARY_DIR}/third_party/xgrammar)
file(GLOB xgrammar_sources ${xgrammar}/cpp/*.cc ${xgrammar}/cpp/support/*.cc)
# Leaves out sources that Tessera does not use, because they would take almost half of the library's compile time.
# xgrammar_left_out.cc defines the functions that other sources call.
list(FILTER xgrammar_sources EXCLUDE REGEX "/(json_schema_converter|lark_converter|structural_tag)\\.cc$")
add_library(tessera_xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources} ${CMAKE_CURRENT_LIST_DIR}/xgrammar_left_out.cc)
target_include_directories(tessera_xgrammar PRIVATE ${xgrammar}/cpp)
target_include_directories(tessera_xgrammar SYSTEM PUBLIC
  ${xgrammar}/include ${xgrammar}/3rdparty/dlpack/include ${xgrammar}/3rdparty/picojson)
target_compile_definitions(tessera_xgrammar PRIVATE
  XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
  XGRAMMAR_LOG_CUSTOMIZE=1)  # grammar.cpp gets errors and warnings
set_target_properties(tessera_xgrammar PROPERTIES
  CXX_STANDARD 17 CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON EXPORT_COMPILE_COMMANDS OFF)
tessera_share_units(tessera_xgrammar 6)
target_compile_options(tessera_xgrammar PRIVATE -w -O1 $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>)
if(TESSERA_SANITIZE)
  target_compile_options(tessera_xgrammar PRIVATE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer)
endif()
