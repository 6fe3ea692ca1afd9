# How every target of this project is built, and the two helpers that tests and kernels use.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # ccache keeps nothing of files with precompiled headers unless told that neither they nor __TIME__ matter.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Contraction off: a compiler that fuses a*b+c in one place and not in another changes answers.
add_compile_options(-Wall -Wextra -Wpedantic -Werror -ffp-contract=off)
# GCC 12 reports overlapping and overlong copies in std::string operations that cannot happen (GCC bug 105651).
add_compile_options("$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-stringop-overflow>")
# GCC collects garbage at 128 MB by default, on any machine with more than 1 GB: a tenth of its time and more.
add_compile_options("$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=524288>")
# CAF 0.17 and Asio 1.22 need these; harmless elsewhere. The last: Asio chooses aligned_alloc() or operator new by whether
# a header of the standard library came before its own, so that one source file would free what another allocated.
add_compile_definitions(ASIO_HAS_CO_AWAIT=1 ASIO_STANDALONE=1 ASIO_DISABLE_STD_ALIGNED_ALLOC=1)
# What ships names source files from the top of the tree, wherever it was built: the same bytes on any machine. ccache
# gives the compiler paths that are relative to the folder of the build.
file(RELATIVE_PATH TROUPE_SOURCE_FROM_BUILD ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}/CMakeLists.txt)
string(REPLACE CMakeLists.txt "" TROUPE_SOURCE_FROM_BUILD "${TROUPE_SOURCE_FROM_BUILD}")
add_compile_options($<$<CONFIG:Release>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>)
if(TROUPE_SOURCE_FROM_BUILD)
  add_compile_options($<$<CONFIG:Release>:-ffile-prefix-map=${TROUPE_SOURCE_FROM_BUILD}=>)
endif()
if(TROUPE_SANITIZE)
  add_compile_options(-fsanitize=${TROUPE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(TROUPE_SANITIZE MATCHES undefined)
    # A null pointer and a freed object are found by AddressSanitizer, too; a function's type is the compiler's to check,
    # and to do it at run time takes 10,000 descriptions of types in each program: a third less to compile.
    add_compile_options(-fno-sanitize=null,vptr,function)
  endif()
  # Reports name functions and lines, not variables: less to compile and to link.
  add_compile_options($<$<CXX_COMPILER_ID:Clang>:-gline-tables-only>)
  add_link_options(-fsanitize=${TROUPE_SANITIZE} $<$<CXX_COMPILER_ID:Clang>:-fuse-ld=lld>)
  # Half of what a program looks up in its libraries when it starts.
  add_link_options(-Wl,-Bsymbolic-functions)
endif()

# Coverage for the fuzzers of tests/fuzz, clang only: in the libraries, so that every program of the build can use
# them and there is one build for tests and fuzzers. Kernels are left out: nothing hostile decides there, and each
# edge of an inner loop would cost a counter.
set(TROUPE_FUZZ_OPTIONS)
if(TROUPE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "TROUPE_FUZZ needs clang: cmake --preset asan")
  endif()
  set(TROUPE_FUZZ_OPTIONS -fsanitize=fuzzer-no-link)
endif()

find_package(Threads REQUIRED)
# Messages. Debian's spdlog uses this library, too (SPDLOG_FMT_EXTERNAL), not a copy of its own.
find_package(fmt REQUIRED)

# For code that runs once per command, option or report: less to generate, nothing that a user notices.
set(TROUPE_COLD_OPTIONS $<$<CONFIG:Release>:-O1>)

# Under sanitizers only what computes is optimised: for the rest clang 14 takes half the time this way, and for what
# is not a kernel -O1 will do.
set(TROUPE_OPTIMISED_TARGETS troupe_std_headers troupe_kernels troupe_engine troupe_chat troupe_cache
  troupe_scheduler)
function(troupe_set_optimisation name)
  if(TROUPE_SANITIZE AND NOT name IN_LIST TROUPE_OPTIMISED_TARGETS)
    target_compile_options(${name} PRIVATE -O0)
  elseif(TROUPE_SANITIZE AND NOT name STREQUAL "troupe_kernels")
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()

# The standard library is parsed once for all files but kernels, which have flags of their own and little of it.
option(TROUPE_PCH "Precompile the headers of the standard library" ON)
if(TROUPE_PCH)
  if(CCACHE_PROGRAM)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options(-fpch-preprocess)
    else()
      add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
    endif()
  endif()
  # plain: for what is not optimised, under sanitizers and below tests/.
  foreach(name troupe_std_headers troupe_std_headers_plain)
    add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/cmake/std_headers.cpp)
    target_compile_options(${name} PRIVATE ${TROUPE_FUZZ_OPTIONS})
    troupe_set_optimisation(${name})
    target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/std_headers.h)
  endforeach()
  target_compile_options(troupe_std_headers_plain PRIVATE -O0)
endif()

# Neighbours are compiled together: their headers are parsed and their templates instantiated once. Off, each file is
# compiled alone: more for the first build, less after an edit.
option(TROUPE_UNITY "Compile the files of a library or test in batches" ON)
set(CMAKE_UNITY_BUILD ${TROUPE_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
if(TROUPE_UNITY)
  # GCC asks whether a type belongs to one file, and takes the batch for a header.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()

# troupe_compiled_alone(file...): for files that name things as their neighbours do.
function(troupe_compiled_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

set(TROUPE_TESTS_DIR ${CMAKE_SOURCE_DIR}/tests)

# troupe_library(name SOURCES a.cpp ... LIBS x y): a static library whose headers are included from the
# top ("cache/ids.h").
function(troupe_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  # Under sanitizers a program with all of them has 170 MB and takes a second to link: they are shared there.
  if(TROUPE_SANITIZE)
    add_library(${name} SHARED ${ARG_SOURCES})
  else()
    add_library(${name} STATIC ${ARG_SOURCES})
  endif()
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LIBS})
  if(NOT name STREQUAL "troupe_kernels")
    target_compile_options(${name} PRIVATE ${TROUPE_FUZZ_OPTIONS})
    troupe_set_optimisation(${name})
    if(TROUPE_PCH)
      set(headers troupe_std_headers)
      cmake_path(IS_PREFIX TROUPE_TESTS_DIR "${CMAKE_CURRENT_SOURCE_DIR}" in_tests)
      if(in_tests OR (TROUPE_SANITIZE AND NOT name IN_LIST TROUPE_OPTIMISED_TARGETS))
        set(headers troupe_std_headers_plain)
      endif()
      target_precompile_headers(${name} REUSE_FROM ${headers})
    endif()
  endif()
endfunction()

# troupe_isa_source(file flags...): the instruction set of one kernel file, whatever the build type.
function(troupe_isa_source file)
  set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${ARGN}")
endfunction()

# What the tests need that are not labelled caf: all that ThreadSanitizer is asked to build.
add_custom_target(tests_without_caf)

# The longest tests, longest first: they begin first, so that none of them is the last to run, alone. ctest's own figures
# of an earlier run replace these.
set(TROUPE_LONG_TESTS engine_constraints_test engine_calls_test test_cli_service test_cli_commands test_cli_serve
  protocol_test actors_plain_test
  ipc_end_to_end_test engine_determinism_test engine_golden_test engine_decoder_test kernels_test test_load
  test_memory_limits gateway_test engine_recurrent_test scheduler_serving_test)

# The release build has all tests; the sanitizers' builds have all but those named in tests/release_only.txt: NAME REASON.
set(TROUPE_RELEASE_ONLY)
if(TROUPE_SANITIZE)
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tests/release_only.txt)
  file(STRINGS ${CMAKE_SOURCE_DIR}/tests/release_only.txt TROUPE_RELEASE_ONLY REGEX "^[a-z]")
  list(TRANSFORM TROUPE_RELEASE_ONLY REPLACE " .*" "")
endif()

# troupe_unchecked_kernels(test): under AddressSanitizer the test runs with kernels that it does not check (kernels/).
function(troupe_unchecked_kernels test)
  if(TARGET troupe_kernels_unchecked)
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
      "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:troupe_kernels_unchecked>")
  endif()
endfunction()

# troupe_test(name SOURCES a_test.cpp ... LIBS x y [LABELS l] [DEFINITIONS d] [COMPUTES]): one Catch2 program, one ctest entry.
# COMPUTES: its own code takes most of its time, and is optimised.
# Tests run in the top folder: reference data is looked for in ../shared, or where TROUPE_SHARED_DIR says. A program of
# which nothing could be run here is Skipped: its last line says so (catch_main.cpp and need_descriptors.cpp in
# tests/support). Not its exit code: Catch2's is the number of failures.
function(troupe_test name)
  cmake_parse_arguments(ARG "COMPUTES" "TIMEOUT" "SOURCES;LIBS;LABELS;DEFINITIONS" ${ARGN})
  if(name IN_LIST TROUPE_RELEASE_ONLY)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # It replaces operator new and delete.
  troupe_compiled_alone(${CMAKE_SOURCE_DIR}/tests/support/count_allocations.cpp)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} troupe_catch_main)
  if(ARG_COMPUTES AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(${name} PRIVATE -O1)
  elseif(TROUPE_PCH)
    target_precompile_headers(${name} REUSE_FROM troupe_test_headers)
  endif()
  target_compile_definitions(${name} PRIVATE TROUPE_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
                                             TROUPE_MODELS="${CMAKE_SOURCE_DIR}/models" ${ARG_DEFINITIONS})
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    SKIP_REGULAR_EXPRESSION "(^|\n)skipped: (all [0-9]+ test cases|these tests need [0-9]+ descriptors)")
  list(FIND TROUPE_LONG_TESTS ${name} place)
  if(place GREATER_EQUAL 0)
    math(EXPR cost "1000 - ${place}")
    set_tests_properties(${name} PROPERTIES COST ${cost})
  endif()
  if("caf" IN_LIST ARG_LABELS)
    troupe_unchecked_kernels(${name})
  else()
    add_dependencies(tests_without_caf ${name})
  endif()
endfunction()

# troupe_install_headers(COMPONENT name [EXCLUDE_FROM_ALL] HEADERS file...): installs them below include/troupe, with
# each other's paths there; as they will be, they lie in the build's include/troupe, and examples are compiled with those.
function(troupe_install_headers)
  cmake_parse_arguments(ARG "EXCLUDE_FROM_ALL" "COMPONENT" "HEADERS" ${ARGN})
  set(exclude "")
  if(ARG_EXCLUDE_FROM_ALL)
    set(exclude EXCLUDE_FROM_ALL)
  endif()
  foreach(header ${ARG_HEADERS})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${header})
    file(READ ${CMAKE_SOURCE_DIR}/${header} text)
    string(REGEX REPLACE "#include \"([^\"]+)\"" "#include <troupe/\\1>" text "${text}")
    set(copy ${CMAKE_BINARY_DIR}/include/troupe/${header})
    file(CONFIGURE OUTPUT ${copy} CONTENT "${text}" @ONLY)
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${copy}
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe/${folder} COMPONENT ${ARG_COMPONENT} ${exclude})
  endforeach()
endfunction()
