# tessera_layer(NAME SRCS … TESTS … DEPS … [PRIVATE_DEPS …])
#
# One folder of src/: a static library tessera_NAME of SRCS, and a test program NAME_test of TESTS.
# DEPS are lower layers by name; PRIVATE_DEPS are third-party targets that no header of the layer shows.
function(tessera_layer NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;TESTS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(tessera_${NAME} STATIC ${ARG_SRCS})
  target_include_directories(tessera_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/include)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(tessera_${NAME} PUBLIC tessera_${dep})
  endforeach()
  target_link_libraries(tessera_${NAME} PRIVATE ${ARG_PRIVATE_DEPS})
  tessera_compile_options(tessera_${NAME})

  if(TESSERA_BUILD_TESTS AND ARG_TESTS)
    tessera_test(${NAME}_test SRCS ${ARG_TESTS} DEPS tessera_${NAME} ${ARG_PRIVATE_DEPS})
  endif()
endfunction()

# A GoogleTest program registered with CTest. Tests find files of the repository through
# TESSERA_SOURCE_DIR and real data, where it is present, through TESSERA_SHARED_DIR.
function(tessera_test NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPS} GTest::gmock_main)
  target_compile_definitions(${NAME} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  tessera_compile_options(${NAME})
  add_test(NAME ${NAME} COMMAND ${NAME} --gtest_output=xml:${PROJECT_BINARY_DIR}/test-results/${NAME}.xml)
endfunction()

function(tessera_compile_options TARGET)
  target_compile_options(${TARGET} PRIVATE -Wall -Wextra -Wconversion -Wshadow -Werror)
  # Kernels rely on the compiler's vectoriser; `omp simd` marks reductions it may reorder.
  target_compile_options(${TARGET} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O3> -fno-math-errno -fno-trapping-math)
  if(TESSERA_OPENMP)
    target_link_libraries(${TARGET} PRIVATE OpenMP::OpenMP_CXX)
  else()
    target_compile_options(${TARGET} PRIVATE -fopenmp-simd)
  endif()
  if(TESSERA_SANITIZE)
    target_compile_options(${TARGET} PRIVATE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${TARGET} PUBLIC -fsanitize=${TESSERA_SANITIZE})
  endif()
endfunction()
