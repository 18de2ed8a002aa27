# Writes each file as a string constant of a C++ header; the constant of a.cl is kASource:
# cmake "-DSOURCES=a.cl;b.cl" -DOUT=kernel_sources.h -P embed.cmake
set(text "// Made from kernels/*.cl by embed.cmake.\n#pragma once\n")
foreach(source IN LISTS SOURCES)
  get_filename_component(name ${source} NAME_WE)
  string(SUBSTRING ${name} 0 1 first)
  string(TOUPPER ${first} first)
  string(SUBSTRING ${name} 1 -1 rest)
  file(READ ${source} content)
  string(APPEND text "inline constexpr const char* k${first}${rest}Source = R\"opencl(${content})opencl\";\n")
endforeach()
file(WRITE ${OUT} "${text}")
