# Slow tests start programs, servers, browsers or compilers and wait for them. `make check` runs only the other tests,
# without the cases of tests/slow_cases.txt.
set(TESSERA_SLOW_TESTS
  chat_formats_script cli_bad_model_script cli_bench_script cli_chat_script cli_errors_script cli_explain_script cli_generate_script
  cli_hub_script cli_image_script cli_make_checkpoint_script cli_quantize_script cli_start_script containerfile_script deb_script dist_script docs_commands_script install_script opencl_program_script page_script plugin_leaks_script plugins_script server_client_replay_script
  server_dashboard_script server_dp_attention_nodes_script server_images_script server_kv_events_script server_load_script server_memory_script server_nginx_script server_nodes_script server_openai_script server_stall_script server_storm_script server_supervised_script wheel_script)
# Timed tests measure how long requests wait. CTest runs no other test at the same time, so that the CPU is free.
set(TESSERA_TIMED_TESTS server_stall_script server_storm_script)
# GPU tests cover the CUDA device, operators, the engine and whole models. tools/test_cuda.sh runs them on a GPU, which
# it names in TESSERA_TEST_DEVICE.
set(TESSERA_GPU_TESTS
  cuda_device_test ops_test capture_guard_test engine_test goldens_test adapter_goldens_test gguf_goldens_test cached_goldens_test routed_layers_test demo_model_test
  steady_decode_test image_goldens_test seeing_goldens_test vision_soak_test vision_tower_test rank_goldens_test
  dp_attention_test)
file(WRITE ${PROJECT_BINARY_DIR}/gpu_tests.txt "")

# tessera_layer(NAME [VECTORISED] [SRCS …] [ALONE …] [TESTS …] [ROOMS …] [DEPS …] [PRIVATE_DEPS …] [HEADERS …])
#
# Builds one layer: a static library tessera_NAME of SRCS and ALONE, and a test program NAME_test of TESTS.
# ROOMS are subfolders. The CMakeLists.txt of each subfolder adds its sources with tessera_room().
# ALONE are sources that never share a translation unit with others, because they define local names that further
# sources define too (a format's marks).
# VECTORISED layers have loops that rely on the compiler's vectoriser. They are compiled with -O3. Other layers decide
# what runs. They are compiled with -O1, which takes g++ a quarter less time than -O2 (docs/measurements/build.md).
# DEPS are the names of lower layers. PRIVATE_DEPS are third-party targets for the layer and its test program alone.
# HEADERS are precompiled together with the standard library's headers. The layer uses the result, and so do tests whose
# first dependency is the layer (tessera_share_headers).
function(tessera_layer NAME)
  cmake_parse_arguments(ARG "VECTORISED" "" "SRCS;ALONE;TESTS;ROOMS;DEPS;PRIVATE_DEPS;HEADERS" ${ARGN})
  add_library(tessera_${NAME} STATIC)
  tessera_share_units(tessera_${NAME} 32)
  target_include_directories(tessera_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/include)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(tessera_${NAME} PUBLIC tessera_${dep})
  endforeach()
  target_link_libraries(tessera_${NAME} PRIVATE ${ARG_PRIVATE_DEPS})
  set_target_properties(tessera_${NAME} PROPERTIES TESSERA_HEADERS "${ARG_HEADERS}")
  set(optimisation O1)
  if(ARG_VECTORISED)
    set(optimisation O3)
  endif()
  tessera_compile_options(tessera_${NAME} ${optimisation})
  tessera_share_headers(tessera_${NAME} ${optimisation} ${ARG_HEADERS})
  if(NOT ARG_VECTORISED)
    # With -O1 g++ 12 often believes that members of a std::variant or of a std::optional are uninitialised.
    target_compile_options(tessera_${NAME} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
  set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS ${NAME})

  if(TESSERA_BUILD_TESTS)
    tessera_test(${NAME}_test DEPS tessera_${NAME} ${ARG_PRIVATE_DEPS})
  endif()
  tessera_room(${NAME} SRCS ${ARG_SRCS} ALONE ${ARG_ALONE} TESTS ${ARG_TESTS})
  foreach(room IN LISTS ARG_ROOMS)
    add_subdirectory(${room})
  endforeach()
endfunction()

# tessera_room(LAYER [SRCS …] [ALONE …] [VECTORISED …] [TESTS …] [CUDA …]): adds sources of the current folder to the
# layer's library (SRCS, ALONE, VECTORISED), to its test program (TESTS) and to the CUDA backend (CUDA).
# VECTORISED sources need -O3 in a layer that is compiled with -O1.
function(tessera_room LAYER)
  cmake_parse_arguments(ARG "" "" "SRCS;ALONE;VECTORISED;TESTS;CUDA" ${ARGN})
  target_sources(tessera_${LAYER} PRIVATE ${ARG_SRCS} ${ARG_ALONE})
  if(ARG_VECTORISED)
    tessera_add_vectorised(${LAYER} ${ARG_VECTORISED})
  endif()
  set_source_files_properties(${ARG_ALONE} TARGET_DIRECTORY tessera_${LAYER} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(TESSERA_BUILD_TESTS)
    target_sources(${LAYER}_test PRIVATE ${ARG_TESTS})
  endif()
  list(TRANSFORM ARG_CUDA PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(GLOBAL APPEND PROPERTY TESSERA_CUDA_SOURCES ${ARG_CUDA})
endfunction()

# tessera_add_vectorised(LAYER SRCS …): adds sources of the current folder, compiled with -O3, to the layer's library.
# They belong to the target tessera_LAYER_vectorised, which set_source_files_properties() needs as TARGET_DIRECTORY.
function(tessera_add_vectorised LAYER)
  set(target tessera_${LAYER}_vectorised)
  if(NOT TARGET ${target})
    get_target_property(libraries tessera_${LAYER} LINK_LIBRARIES)
    get_target_property(headers tessera_${LAYER} TESSERA_HEADERS)
    if(headers MATCHES "engine/engine.h")
      set(headers "")  # precompiling engine.h for -O3 would take longer than the few sources that need it
    endif()
    add_library(${target} OBJECT)
    tessera_share_units(${target} 32)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${target} PRIVATE ${libraries})
    tessera_compile_options(${target} O3)
    tessera_share_headers(${target} O3 ${headers})
    target_sources(tessera_${LAYER} PRIVATE $<TARGET_OBJECTS:${target}>)
  endif()
  target_sources(${target} PRIVATE ${ARGN})
endfunction()

# tessera_share_units(TARGET COUNT): compiles up to COUNT sources of the target as one translation unit, so that their
# headers and templates are compiled once. Does so only if TESSERA_SHARED_UNITS is on.
function(tessera_share_units TARGET COUNT)
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ${TESSERA_SHARED_UNITS} UNITY_BUILD_BATCH_SIZE ${COUNT})
endfunction()

# tessera_share_headers(TARGET OPTIMISATION [HEADERS …]): precompiles the headers of the standard library and of fmt,
# and HEADERS, which nearly every source of the target includes. Targets with the same OPTIMISATION and HEADERS share
# the result.
# OPTIMISATION is O1 or O3 for libraries. It is TESTS for tests, which are compiled with -O1 and for which GoogleTest's
# headers are precompiled too.
# <filesystem> and <iomanip> are left out, because with them a call quoted(std::string) would also find std::quoted.
# Only g++ uses precompiled headers, and only if sources share translation units. Other builds find missing includes.
function(tessera_share_headers TARGET OPTIMISATION)
  if(NOT TESSERA_SHARED_UNITS OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  set(owner tessera_headers_${OPTIMISATION})
  foreach(header IN LISTS ARGN)
    string(REGEX REPLACE ".*/(.*)\\.h>" "_\\1" name ${header})
    string(APPEND owner ${name})
  endforeach()
  if(NOT TARGET ${owner})
    # The owner defines only macros that all targets define, because g++ refuses headers precompiled with other macros.
    file(WRITE ${PROJECT_BINARY_DIR}/headers.cpp "")
    add_library(${owner} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/headers.cpp)
    set(level ${OPTIMISATION})
    if(OPTIMISATION STREQUAL TESTS)
      set(level O1)
      # Tests are programs. g++ refuses headers precompiled with -fPIC in a program, which has -fPIE.
      set_target_properties(${owner} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${owner} PRIVATE -fPIE)
      target_link_libraries(${owner} PRIVATE GTest::gmock)
      set(test_headers <gmock/gmock.h> <gtest/gtest.h>)
    endif()
    target_include_directories(${owner} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${owner} PRIVATE fmt::fmt)
    tessera_compile_options(${owner} ${level})
    target_precompile_headers(${owner} PRIVATE
      <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque>
      <fstream> <functional> <future> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream>
      <string> <string_view> <thread> <unordered_map> <unordered_set> <utility> <variant> <vector>
      <fmt/format.h> <fmt/ranges.h> ${test_headers} ${ARGN})
    # By default ccache preprocesses the headers to recognise them. g++ would then read the precompiled headers of an
    # earlier build instead. CCACHE_DEPEND makes ccache use g++'s list of included files, which is always right.
    if(ccache_launcher AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL ccache_launcher)
      set(launcher ${ccache_launcher})
      list(INSERT launcher -1 CCACHE_DEPEND=true)
      set_target_properties(${owner} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    endif()
  endif()
  target_precompile_headers(${TARGET} REUSE_FROM ${owner})
  # g++ 12 warns of sizes that std::string's functions never have (GCC bug 105329). It does so even in system headers,
  # if they are precompiled. Clang and the sanitizers still look for such errors.
  target_compile_options(${TARGET} PRIVATE -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endfunction()

# tessera_program(NAME SRCS … DEPS …): builds a program at the top of the build folder. `cmake --install` copies it into
# bin/.
function(tessera_program NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPS})
  tessera_compile_options(${NAME})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  install(TARGETS ${NAME} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# tessera_test(NAME [SRCS …] DEPS …): builds a GoogleTest program and registers it with CTest. The macro
# TESSERA_SOURCE_DIR tells tests where the repository is. The first of DEPS decides which headers are precompiled.
function(tessera_test NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPS} fmt::fmt GTest::gmock_main)
  target_compile_definitions(${NAME} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  tessera_compile_options(${NAME} O1)  # compiling tests takes longer than running them
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Only `make asan-parsers` compiles tests with Clang. With -O1 compiling would take three times as long.
    target_compile_options(${NAME} PRIVATE -O0)
  endif()
  tessera_share_units(${NAME} 12)
  list(GET ARG_DEPS 0 layer)
  get_property(headers TARGET ${layer} PROPERTY TESSERA_HEADERS)
  tessera_share_headers(${NAME} TESTS ${headers})
  # When a layer changes, dozens of programs are linked again. LLD takes a third of the default linker's time.
  if(TESSERA_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_link_options(${NAME} PRIVATE -fuse-ld=lld)
  endif()
  add_test(NAME ${NAME} COMMAND ${NAME} --gtest_output=xml:${PROJECT_BINARY_DIR}/test-results/${NAME}.xml)
  tessera_test_properties(${NAME})
endfunction()

# tessera_script_test(NAME COMMAND …): registers a script with CTest as NAME_script. It runs in the repository's root.
# Its last line may be "N passed, N failed". To skip itself it ends with status 77, and its last line is the reason.
function(tessera_script_test NAME)
  cmake_parse_arguments(ARG "" "" "COMMAND" ${ARGN})
  add_test(NAME ${NAME}_script COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${NAME}_script PROPERTIES SKIP_RETURN_CODE 77)
  tessera_test_properties(${NAME}_script)
endfunction()

# Sets a test's time limit, labels and environment. Every test has the label fast or slow. Tests that
# tools/test_cuda.sh runs on a GPU also have the label gpu, and gpu_tests.txt lists them.
function(tessera_test_properties NAME)
  set(labels fast)
  if(NAME IN_LIST TESSERA_SLOW_TESTS)
    set(labels slow)
  endif()
  if(NAME IN_LIST TESSERA_GPU_TESTS)
    list(APPEND labels gpu)
    file(APPEND ${PROJECT_BINARY_DIR}/gpu_tests.txt "${NAME}\n")
  endif()
  if(NAME IN_LIST TESSERA_TIMED_TESTS)
    set_tests_properties(${NAME} PROPERTIES RUN_SERIAL ON)
  endif()
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${TESSERA_TEST_TIMEOUT_S} LABELS "${labels}")
  if(TESSERA_SANITIZE MATCHES thread)
    set_tests_properties(${NAME} PROPERTIES
      ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/tsan.supp")
  endif()
endfunction()

# tessera_compile_options(TARGET [O1|O2|O3]): sets the options for warnings and sanitizers, and the optimisation of
# release builds (-O2 by default).
function(tessera_compile_options TARGET)
  set(shadow -Wshadow)
  if(TESSERA_SHARED_UNITS AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(shadow -Wshadow=local -Wno-subobject-linkage)  # another source's names in the same translation unit are no fault of this one
  endif()
  target_compile_options(${TARGET} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;${shadow};-Werror>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 warns of overlap inside std::string's operator+ (GCC bug 105651).
    target_compile_options(${TARGET} PRIVATE -Wno-restrict)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # for fuzz and asan-parsers; only g++'s warnings are errors
    target_compile_options(${TARGET} PRIVATE -Wno-error -Wno-deprecated-declarations -Wno-pass-failed)
  endif()
  # These options do not let the compiler reorder sums. `omp simd` marks the reductions that the vectoriser may reorder.
  set(level -O2)
  if(ARGN)
    set(level -${ARGN})
  endif()
  target_compile_options(${TARGET} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release,RelWithDebInfo>>:${level}> -fno-math-errno -fno-trapping-math)
  if(TESSERA_SHARED_UNITS AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ collects its garbage only above 1 GB of memory instead of 128 MB. This saves a tenth of the time for the
    # largest sources.
    target_compile_options(${TARGET} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
  endif()
  # A program may compile our inline functions with other options, for example without OpenMP. The library must call its
  # own copies of them.
  target_compile_options(${TARGET} PRIVATE -fvisibility-inlines-hidden)
  if(TESSERA_OPENMP)
    target_link_libraries(${TARGET} PRIVATE OpenMP::OpenMP_CXX)
  else()
    target_compile_options(${TARGET} PRIVATE -fopenmp-simd)
  endif()
  if(TESSERA_SANITIZE)
    target_compile_options(${TARGET} PRIVATE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    # Instrumented code misleads g++'s analysis of what is initialised, for example in std::regex.
    target_compile_options(${TARGET} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    if(TESSERA_SANITIZE STREQUAL "thread")  # Asio has fences, which the sanitizer does not see
      target_compile_options(${TARGET} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
    endif()
    target_link_options(${TARGET} PUBLIC -fsanitize=${TESSERA_SANITIZE})
  endif()
endfunction()
