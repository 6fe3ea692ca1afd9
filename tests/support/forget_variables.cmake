# ctest reads this before it runs a test: variables that a user has set for troupe do not reach its tests.
set(for_tests TROUPE_KERNELS TROUPE_SHARED_DIR TROUPE_MUTATIONS TROUPE_CHURN)  # the first: other kernels for all tests
execute_process(COMMAND env OUTPUT_VARIABLE variables)
string(REGEX MATCHALL "\nTROUPE_[A-Za-z0-9_]+" names "\n${variables}")
string(REPLACE "\n" "" names "${names}")
list(REMOVE_ITEM names ${for_tests})
foreach(name IN LISTS names ITEMS CACHE_DIRECTORY NOTIFY_SOCKET WATCHDOG_USEC LISTEN_FDS LISTEN_PID)
  unset(ENV{${name}})
endforeach()
